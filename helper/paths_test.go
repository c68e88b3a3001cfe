package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSplitPathNeverLeaves(t *testing.T) {
	pieces := []string{"a", "..", ".", "", "/", "\x00", "b c", "\n", "é", "...", "..a"}
	for range 20_000 {
		var parts []string
		for range rand.IntN(6) {
			parts = append(parts, pieces[rand.IntN(len(pieces))])
		}
		path := strings.Join(parts, "/")
		for _, try := range []string{path, "/" + path} {
			for _, split := range []func(string) ([]string, error){splitPath, splitRelative} {
				got, err := split(try)
				if err != nil {
					continue
				}
				for _, part := range got {
					if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/\x00") {
						t.Fatalf("%q gave %q", try, got)
					}
				}
			}
		}
	}
	if _, err := splitPath(strings.Repeat("/a", maxDepth+1)); err == nil {
		t.Fatal("too deep")
	}
	if _, err := splitPath("/" + strings.Repeat("a", maxPath)); err == nil {
		t.Fatal("too long")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreatePathReplacesWhatIsPlanted(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, path, victim string){
		"link":        func(t *testing.T, path, victim string) { must(t, os.Symlink(victim, path)) },
		"hard link":   func(t *testing.T, path, victim string) { must(t, os.Link(victim, path)) },
		"fifo":        func(t *testing.T, path, victim string) { must(t, syscall.Mkfifo(path, 0o666)) },
		"folder":      func(t *testing.T, path, victim string) { must(t, os.MkdirAll(path+"/x/y", 0o755)) },
		"parent link": func(t *testing.T, path, victim string) { plantParent(t, path, victim) },
		"parent file": func(t *testing.T, path, victim string) {
			must(t, os.Remove(filepath.Dir(path)))
			must(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
		},
		"nothing": func(t *testing.T, path, victim string) {},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			victim := root + "/victim"
			must(t, os.WriteFile(victim, []byte("precious"), 0o600))
			must(t, os.Mkdir(root+"/logs", 0o755))
			path := root + "/logs/out"
			plant(t, path, victim)
			file, err := createPath(path, os.O_WRONLY, 0o640, nil)
			must(t, err)
			file.WriteString("new")
			file.Close()
			if content, _ := os.ReadFile(victim); string(content) != "precious" {
				t.Fatalf("the victim was written: %q", content)
			}
			info, err := os.Lstat(path)
			must(t, err)
			if info.Mode() != 0o640 || info.Size() != 3 {
				t.Fatalf("%v %d", info.Mode(), info.Size())
			}
		})
	}
}

func plantParent(t *testing.T, path, victim string) {
	elsewhere := filepath.Dir(victim) + "/elsewhere"
	must(t, os.Mkdir(elsewhere, 0o755))
	must(t, os.Link(victim, elsewhere+"/out"))
	must(t, os.Remove(filepath.Dir(path)))
	must(t, os.Symlink(elsewhere, filepath.Dir(path)))
}

func TestReadStates(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/small", []byte("1.0"), 0o600))
	must(t, os.WriteFile(root+"/empty", nil, 0o600))
	must(t, os.Symlink(root+"/small", root+"/link"))
	must(t, os.Symlink(root, root+"/parent"))
	must(t, os.Mkdir(root+"/folder", 0o755))
	must(t, syscall.Mkfifo(root+"/fifo", 0o600))
	listener, err := net.Listen("unix", root+"/socket")
	must(t, err)
	defer listener.Close()
	for path, want := range map[string]fileResult{
		"/small":        {State: "regular", Size: 3, Content: []byte("1.0")},
		"/empty":        {State: "regular"},
		"/none":         {State: "missing"},
		"/none/none":    {State: "missing"},
		"/link":         {State: "notRegular"},
		"/parent/small": {State: "notRegular"},
		"/small/x":      {State: "notRegular"},
		"/folder":       {State: "notRegular"},
		"/fifo":         {State: "notRegular"},
		"/socket":       {State: "notRegular"},
	} {
		got := readOne(readSpec{Path: root + path, MaxBytes: 3})
		if got.State != want.State || got.Size != want.Size || string(got.Content) != string(want.Content) {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if got := readOne(readSpec{Path: root + "/small", MaxBytes: 2}); got.State != "tooLarge" || got.Size != 3 || got.Content != nil {
		t.Errorf("%+v", got)
	}
	file, err := os.Open("/proc/self/status") // says size 0 and has more: a file that grows
	must(t, err)
	if content, err := readLimited(file, 0, 10); err != nil || len(content) != 11 {
		t.Errorf("%d %v", len(content), err)
	}
}

// fill makes a folder with everything that is hard to remove.
func fill(t *testing.T, root string, depth int) {
	t.Helper()
	must(t, os.WriteFile(root+"/new\nline \xff\xfe", nil, 0o600))
	must(t, syscall.Mkfifo(root+"/fifo", 0))
	must(t, os.Mkdir(root+"/closed", 0o755))
	must(t, os.WriteFile(root+"/closed/file", nil, 0))
	must(t, os.Chmod(root+"/closed", 0))
	for i := range 1500 {
		must(t, os.WriteFile(root+"/f"+strings.Repeat("i", i%200)+string(rune('a'+i%26)), nil, 0o600))
	}
	dir, err := openat(-1, root, oPath|syscall.O_DIRECTORY, 0)
	must(t, err)
	for range depth { // deeper than any path can say
		must(t, mkdirat(dir, "deep", 0o755))
		fd, err := openat(dir, "deep", oPath|syscall.O_DIRECTORY, 0)
		must(t, err)
		must(t, syscall.Close(dir))
		dir = fd
	}
	syscall.Close(dir)
}

func reset(path string) error {
	_, err := resetFolder(path, nil, func() {})
	return err
}

func TestResetRemovesEverythingAndFollowsNothing(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
	must(t, os.MkdirAll(root+"/tests/sub", 0o700))
	must(t, os.Symlink(root, root+"/tests/sub/up"))
	must(t, os.Symlink(root+"/victim", root+"/tests/link"))
	fill(t, root+"/tests", 1000)
	must(t, reset(root+"/tests"))
	names, _ := os.ReadDir(root + "/tests")
	info, _ := os.Lstat(root + "/tests")
	if len(names) != 0 || info.Mode() != os.ModeDir|0o755 {
		t.Fatal(names, info.Mode())
	}
	if content, _ := os.ReadFile(root + "/victim"); string(content) != "precious" {
		t.Fatal("the victim is gone")
	}
}

func TestResetKeepsRegularFilesOnly(t *testing.T) {
	root := t.TempDir() + "/in"
	must(t, os.MkdirAll(root+"/folder/keep", 0o755))
	must(t, os.WriteFile(root+"/keep", []byte("x"), 0o600))
	must(t, os.WriteFile(root+"/other", []byte("x"), 0o600))
	must(t, os.Symlink("/etc/passwd", root+"/link"))
	dropped, err := resetFolder(root, []string{"keep", "link", "folder", "none"}, func() {})
	must(t, err)
	if fmt.Sprint(dropped) != "[folder link]" {
		t.Fatalf("dropped: %v", dropped)
	}
	names, _ := os.ReadDir(root)
	if len(names) != 1 || names[0].Name() != "keep" {
		t.Fatal(names)
	}
}

func TestResetReplacesLinkAndFile(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/elsewhere", 0o755))
	must(t, os.WriteFile(root+"/elsewhere/x", nil, 0o600))
	must(t, os.Symlink(root+"/elsewhere", root+"/link"))
	must(t, os.WriteFile(root+"/file", nil, 0o600))
	for _, path := range []string{"/link", "/file", "/new/new", "/link/below"} {
		must(t, reset(root+path))
		if info, err := os.Lstat(root + path); err != nil || !info.IsDir() {
			t.Fatal(path, err)
		}
	}
	if _, err := os.Stat(root + "/elsewhere/x"); err != nil {
		t.Fatal(err)
	}
	if err := reset("/"); err == nil {
		t.Fatal("the root was reset")
	}
}

func TestResetGivesUpAgainstAFiller(t *testing.T) {
	stop := make(chan struct{})
	root := t.TempDir() + "/tests"
	must(t, os.Mkdir(root, 0o755))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				os.Mkdir(root, 0o755)
				os.WriteFile(root+"/"+string(rune('a'+i%26)), nil, 0o600)
			}
		}
	}()
	for range 50 {
		if err := reset(root); err != nil && !errors.Is(err, errKeepsChanging) {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
}
