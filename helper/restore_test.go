package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// restoring gives a restorer whose guarded folders are below root.
func restoring(root string) *restorer {
	r := newRestorer(func() {})
	r.guarded = []string{root + "/tests", root + "/logs/verifier"}
	return r
}

func (r *restorer) framed(path, kind string, data []byte, entries int64) (*restoreResult, error) {
	src := bufio.NewReader(bytes.NewReader(frameArchive(data, 1000, entries)))
	return r.restore(src, &operation{Op: "restore", Path: path, Type: kind, MaxBytes: 1 << 20, MaxEntries: 100}, "")
}

func folder(name string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: os.Geteuid(), Gid: os.Getegid()}, ""}
}

func reasonIs(err error, reason string) bool {
	var fail *failure
	return errors.As(err, &fail) && fail.Reason == reason
}

func TestRestoreOfAHostileFolder(t *testing.T) {
	for name, c := range map[string]struct {
		entries []entry
		reason  string // "" for one that is put in place
		left    int64
	}{
		"absolute":            {[]entry{reg("/etc/x", "", 0o600)}, "Unpack", 0},
		"climbing":            {[]entry{reg("a/../../x", "", 0o600)}, "Unpack", 0},
		"climbing at once":    {[]entry{reg("../victim", "", 0o600)}, "Unpack", 0},
		"a file at the top":   {[]entry{reg(".", "", 0o600)}, "Unpack", 0},
		"through a link":      {[]entry{link(tar.TypeSymlink, "l", "."), reg("l/x", "x", 0o600)}, "", 0},
		"through a link out":  {[]entry{link(tar.TypeSymlink, "l", ".."), reg("l/victim", "x", 0o600)}, "", 1},
		"a link out":          {[]entry{link(tar.TypeSymlink, "l", "/tests/test.sh")}, "", 1},
		"a chain of links":    {[]entry{link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "a/up", "../.."), reg("a/up/victim", "x", 0o600)}, "", 1},
		"a hard link out":     {[]entry{link(tar.TypeLink, "h", "../victim")}, "Unpack", 0},
		"an absolute one":     {[]entry{link(tar.TypeLink, "h", "/etc/passwd")}, "Unpack", 0},
		"a hard link nowhere": {[]entry{link(tar.TypeLink, "h", "none"), link(tar.TypeLink, "h2", "no/folder")}, "", 2},
		"a hard link via one": {[]entry{link(tar.TypeSymlink, "l", "."), link(tar.TypeLink, "h", "l/f"), reg("f", "", 0o600)}, "", 1},
		"a hard link to one":  {[]entry{link(tar.TypeSymlink, "l", "f"), link(tar.TypeLink, "h", "l")}, "", 1},
		"a hard link inside":  {[]entry{reg("f", "x", 0o600), link(tar.TypeLink, "d/h", "f")}, "", 0},
		"devices and pipes": {[]entry{{tar.Header{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1}, ""}, {tar.Header{Typeflag: tar.TypeBlock, Name: "b"}, ""},
			{tar.Header{Typeflag: tar.TypeFifo, Name: "p"}, ""}, {tar.Header{Typeflag: '9', Name: "odd"}, ""}}, "", 4},
		"setuid":            {[]entry{reg("s", "x", 0o6755), folder("d/", 0o7755)}, "", 0},
		"names twice":       {[]entry{reg("n", "1", 0o600), folder("n", 0o755), reg("n/x", "2", 0o600), reg("n", "3", 0o600), folder("n", 0o700)}, "", 0},
		"folders and files": {[]entry{folder("d", 0o755), reg("d", "", 0o600), folder("d", 0o755), link(tar.TypeSymlink, "d", "x"), reg("d/y", "", 0o600)}, "", 0},
		"a closed folder":   {[]entry{folder("./", 0o500), folder("d", 0), reg("d/x", "", 0)}, "", 0},
		"numbers":           {[]entry{{tar.Header{Typeflag: tar.TypeReg, Name: "n", Uid: math.MaxInt32 * 4, Gid: -5}, ""}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
			must(t, os.MkdirAll(root+"/there/old", 0o755))
			result, err := restoring(root).framed(root+"/there", typeDirectory, tarOf(t, c.entries...), int64(len(c.entries)))
			if c.reason != "" && !reasonIs(err, c.reason) || c.reason == "" && err != nil {
				t.Fatal(err)
			}
			if err != nil && !strings.Contains(err.Error(), root+"/there") {
				t.Error("it does not say which artifact:", err)
			}
			if err == nil && (result.SkippedCount != c.left || result.Entries != int64(len(c.entries))) {
				t.Errorf("%+v", result)
			}
			if impossible := name == "numbers"; err == nil && (result.Owners == 1) != impossible {
				t.Errorf("%d owners are not kept", result.Owners)
			}
			names, _ := os.ReadDir(root)
			content, _ := os.ReadFile(root + "/victim")
			info, err := os.Lstat(root + "/victim")
			must(t, err)
			if string(content) != "precious" || len(names) != 2 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
				t.Fatal(names, string(content))
			}
			if _, err := os.Lstat(root + "/there/old"); err == nil {
				t.Error("what was there is still there")
			}
			filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
				if err == nil && info.Mode()&(os.ModeDevice|os.ModeNamedPipe|os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Error(path, info.Mode())
				}
				return nil
			})
		})
	}
}

func TestRestoreHasLimits(t *testing.T) {
	var many []entry
	for i := range 101 {
		many = append(many, reg(fmt.Sprint(i), "", 0o600))
	}
	sparse := sparseTar(t, 1<<40)
	for name, data := range map[string][]byte{
		"too many entries": tarOf(t, many...), "too many bytes": tarOf(t, reg("big", strings.Repeat("x", 1<<20+1), 0o600)), "1 TiB of holes": sparse,
		"too deep": tarOf(t, reg(strings.Repeat("d/", 300)+"x", "", 0o600)), "a long name": tarOf(t, reg(strings.Repeat("d", 256), "", 0o600)),
		"a long path": tarOf(t, reg(strings.Repeat(strings.Repeat("d", 200)+"/", 30)+"x", "", 0o600)),
	} {
		root := t.TempDir()
		if _, err := restoring(root).framed(root+"/there", typeDirectory, data, 1); !reasonIs(err, "Unpack") {
			t.Error(name, err)
		}
	}
}

// sparseTar is an archive of one file of this size, all of it a hole, in the old GNU format.
func sparseTar(t *testing.T, size int64) []byte {
	block := make([]byte, 512)
	copy(block, "f")
	copy(block[100:], "0000600\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(block[257:], "ustar  \x00")
	copy(block[386:], fmt.Sprintf("%011o\x00%011o\x00", 0, 0)) // the one piece of data is empty
	block[483-0] = 0x80                                        // the size, in base 256
	for i := range 8 {
		block[494-i] = byte(size >> (8 * i))
	}
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	data := append(block, make([]byte, 1024)...)
	if h := namesOf(t, data)["f"]; h == nil || h.Size != size || h.Typeflag != tar.TypeGNUSparse {
		t.Fatalf("no sparse file: %+v", h)
	}
	return data
}

func TestRestoreOfAnArchiveThatEndsEarly(t *testing.T) {
	data := tarOf(t, folder("./", 0o755), reg("a", "content", 0o600), reg("b/"+strings.Repeat("c", 200), strings.Repeat("x", 1500), 0o600))
	whole := sha256.Sum256(data)
	for cut := 0; cut < len(data); cut += 512 {
		for _, more := range []int{0, 1, 511} {
			root := t.TempDir()
			part := data[:min(cut+more, len(data)-1)]
			src := bufio.NewReader(bytes.NewReader(frameArchive(part, 1000, 3)))
			o := &operation{Path: root + "/there", Type: typeDirectory, MaxBytes: 1 << 20, MaxEntries: 100}
			if _, err := restoring(root).restore(src, o, hex.EncodeToString(whole[:])); !reasonIs(err, "Unpack") && !reasonIs(err, "Digest") {
				t.Errorf("%d bytes: %v", len(part), err)
			}
		}
	}
}

func TestRestoreOfAFileTakesOne(t *testing.T) {
	for name, c := range map[string]struct {
		entries []entry
		fits    bool
	}{
		"one":            {[]entry{reg("whatever/name", "new", 0o4750)}, true},
		"climbing":       {[]entry{reg("../../x", "new", 0o750)}, true}, // its name counts for nothing
		"none":           {nil, false},
		"two":            {[]entry{reg("f", "new", 0o600), reg("g", "", 0o600)}, false},
		"a folder":       {[]entry{folder("f", 0o755)}, false},
		"a link":         {[]entry{link(tar.TypeSymlink, "f", "victim")}, false},
		"a hard link":    {[]entry{link(tar.TypeLink, "f", "victim")}, false},
		"a device":       {[]entry{{tar.Header{Typeflag: tar.TypeChar, Name: "f"}, ""}}, false},
		"a folder first": {[]entry{folder("./", 0o755), reg("f", "new", 0o600)}, false},
	} {
		for _, there := range []string{"nothing", "a file", "a link", "a folder"} {
			root := t.TempDir()
			must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
			plant(t, root+"/f", there)
			_, err := restoring(root).framed(root+"/f", typeFile, tarOf(t, c.entries...), int64(len(c.entries)))
			if c.fits && err != nil || !c.fits && !reasonIs(err, "Unpack") {
				t.Errorf("%s, %s: %v", name, there, err)
			}
			if content, _ := os.ReadFile(root + "/victim"); string(content) != "precious" {
				t.Errorf("%s, %s: the link was followed", name, there)
			}
			if info, err := os.Lstat(root + "/f"); c.fits && (err != nil || info.Mode() != 0o750 || info.Size() != 3) {
				t.Errorf("%s, %s: %v %v", name, there, info, err)
			}
		}
	}
}

func plant(t *testing.T, path, what string) {
	t.Helper()
	switch what {
	case "a file":
		must(t, os.WriteFile(path, []byte("old"), 0o600))
	case "a link":
		must(t, os.Symlink("victim", path))
	case "a folder":
		must(t, os.MkdirAll(path+"/sub/deep", 0o755))
	}
}

func TestRestorePlaces(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/opt/app", 0o755))
	must(t, os.MkdirAll(root+"/tests", 0o755))
	for path, target := range map[string]string{
		"/app": "opt/app", "/opt/app/t": root + "/tests", "/up": "opt/../tests", "/v": "logs", "/loop": "loop", "/late": "none/yet",
	} {
		must(t, os.Symlink(target, root+path))
	}
	must(t, os.Symlink("opt", root+"/planted"))
	must(t, os.Lchown(root+"/planted", 1234, 1234))
	must(t, os.WriteFile(root+"/file", nil, 0o600))
	for path, at := range map[string]string{
		"/new/deep/out": "/new/deep/out", "/app/out": "/opt/app/out", "/late/out": "/none/yet/out", "/app": "/app", "/testsuite": "/testsuite",
		"/logs/artifacts": "/logs/artifacts", "/logs/verifier2": "/logs/verifier2",
		// what leads to the verifier's files, lies above them, or is nobody's to follow
		"/tests": "", "/tests/x": "", "/logs": "", "/logs/verifier": "", "/logs/verifier/a/b": "", "/app/t/x": "", "/app/t/x/y": "", "/up/x": "",
		"/v/verifier": "", "/v/verifier/x": "", "/loop/x": "", "/planted/x": "", "/file/x": "", "": "",
	} {
		_, err := restoring(root).framed(root+path, typeFile, tarOf(t, reg("f", "x", 0o644)), 1)
		if at == "" && !reasonIs(err, "Prepare") || at != "" && err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if info, err := os.Lstat(root + at); at != "" && (err != nil || !info.Mode().IsRegular()) {
			t.Errorf("%s: %v %v", path, info, err)
		}
		if path == "/app" { // it was the link itself that gave way
			must(t, os.Remove(root+"/app"))
			must(t, os.Symlink("opt/app", root+"/app"))
		}
	}
	if names, _ := os.ReadDir(root + "/tests"); len(names) != 0 {
		t.Error("something is in the folder of the tests:", names)
	}
}

func TestWhatWasRestoredRedirectsNothing(t *testing.T) {
	root := t.TempDir()
	r := restoring(root)
	must(t, os.MkdirAll(root+"/work/other", 0o755))
	tree := tarOf(t, folder("sub", 0o755), link(tar.TypeSymlink, "l", "sub"), reg("f", "", 0o600))
	_, err := r.framed(root+"/work/a", typeDirectory, tree, 3)
	must(t, err)
	for path, fits := range map[string]bool{
		"/work/a/l/x": false, "/work": false, "/work/a": false, "/work/a/f/x": false, "/work/a/sub/x": true, "/work/other/x": true,
	} {
		_, err := r.framed(root+path, typeFile, tarOf(t, reg("f", "", 0o600)), 1)
		if fits && err != nil || !fits && !reasonIs(err, "Prepare") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if target, err := os.Readlink(root + "/work/a/l"); err != nil || target != "sub" {
		t.Error("the earlier artifact has changed", err)
	}
}

func TestGuardedFoldersCountWhereTheImageHasThem(t *testing.T) {
	root := t.TempDir()
	must(t, os.Symlink("opt/later/../suite", root+"/tests"))
	if at := whereLeads(root + "/tests"); at != root+"/opt/suite" {
		t.Fatal(at)
	}
	r := restoring(root)
	r.guarded = append(r.guarded, whereLeads(root+"/tests"))
	for _, path := range []string{"/opt/suite/test.sh", "/opt/suite", "/opt"} {
		if _, err := r.framed(root+path, typeFile, tarOf(t, reg("f", "", 0o600)), 1); !reasonIs(err, "Prepare") {
			t.Error(path, err)
		}
	}
	for _, path := range []string{"/", "/tests", "/proc/1", "/sys/x", "/dev/shm/x", "/.taskfold/helper", "/logs", "//logs//verifier/", "/./dev"} {
		if _, _, _, err := newRestorer(func() {}).place(path); err == nil {
			t.Error(path)
		}
	}
}

// A tree with everything that a file system has, through an archive and back: the same, byte for byte.
func TestPackThenRestoreIsTheSame(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to have files of others")
	}
	root := t.TempDir()
	tree := root + "/tree"
	hostileTree(t, tree)
	data, end := packAll(t, &packRequest{MaxBytes: 1 << 30, MaxEntries: 10_000, Roots: []packRoot{{Path: tree, As: "."}}})
	if end.Truncated || end.SkippedCount != 4 || end.ChangedCount != 0 { // two specials, a socket, what is too deep
		t.Fatalf("%+v", end)
	}
	src := bufio.NewReader(bytes.NewReader(frameArchive(data, maxChunk, end.Entries)))
	o := &operation{Path: root + "/back", Type: typeDirectory, MaxBytes: 1 << 30, MaxEntries: 10_000}
	result, err := restoring(root).restore(src, o, end.SHA256)
	must(t, err)
	if result.SkippedCount != 2 || result.Owners != 0 { // links out
		t.Fatalf("%+v", result)
	}
	want, got := portrait(t, tree), portrait(t, root+"/back")
	for name := range want {
		if want[name] != got[name] {
			t.Errorf("%q: %s, was %s", name, got[name], want[name])
		}
	}
	if len(got) != len(want) || len(got) < 260 {
		t.Error(len(got), len(want))
	}
	if used := blocksOf(t, root+"/back/sparse"); used > 1<<20 {
		t.Errorf("a sparse file takes %d bytes", used)
	}
}

// hostileTree plants what an agent may leave behind.
func hostileTree(t *testing.T, tree string) {
	t.Helper()
	must(t, os.MkdirAll(tree+"/a/b", 0o755))
	for name, content := range map[string]string{
		"a/plain": "x", "a/b/empty": "", "a/new\nline": "1", "a/\xff\xfe": "2", "a/\x01\"\\": "3", "a/ünï": "4", strings.Repeat("n", 255): "5",
		"a/zeros": strings.Repeat("\x00", 100_000), "a/blocks": strings.Repeat("x", 4096) + strings.Repeat("\x00", 8192) + "y",
		"a/odd": strings.Repeat("\x00", 4095) + "z",
	} {
		must(t, os.WriteFile(tree+"/"+name, []byte(content), 0o640))
	}
	deep := tree
	for i := range maxDepth + 3 {
		deep += fmt.Sprintf("/%d", i%10)
		must(t, os.Mkdir(deep, 0o755))
	}
	sparse, err := os.Create(tree + "/sparse")
	must(t, err)
	_, err = sparse.WriteAt([]byte("end"), 200<<20)
	must(t, err)
	must(t, sparse.Close())
	for name, target := range map[string]string{
		"a/link": "b/empty", "a/dangling": "none", "a/self": "self", "a/top": tree[:len(tree)-len("tree")] + "back/a", "a/out": "/etc/passwd",
		"a/up": "../../..", "a/\xfflink": "\xff\xfe",
	} {
		must(t, os.Symlink(target, tree+"/"+name))
	}
	must(t, os.Link(tree+"/a/plain", tree+"/a/b/hard"))
	must(t, syscall.Mkfifo(tree+"/a/fifo", 0o600))
	must(t, syscall.Mknod(tree+"/a/null", syscall.S_IFCHR|0o666, 1<<8|3))
	listener, err := net.Listen("unix", tree+"/a/b/socket")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	must(t, os.Lchown(tree+"/a/link", 7, 8))
	must(t, os.Chown(tree+"/a/b", 1000, 1001))
	must(t, os.Chown(tree+"/a/plain", 4_000_000_000, 65534))
	must(t, syscall.Chmod(tree+"/a/plain", 0o6711))
	must(t, syscall.Chmod(tree+"/a/b", 0o1000))
	must(t, syscall.Chmod(tree+"/a/zeros", 0))
	must(t, syscall.Chmod(tree, 0o750))
	filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		return setLinkTimes(-100, path, 1_000_000_000+int64(len(path))) // -100: AT_FDCWD
	})
	must(t, os.Chtimes(tree+"/a/odd", time.Time{}, time.Unix(-5, 0)))
}

// portrait says of each name what there is to compare; of what is not packed, nothing.
func portrait(t *testing.T, tree string) map[string]string {
	t.Helper()
	found := map[string]string{}
	filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		must(t, err)
		info, err := os.Lstat(path)
		must(t, err)
		stat, text := info.Sys().(*syscall.Stat_t), ""
		name := strings.TrimPrefix(path, tree)
		switch {
		case strings.Count(name, "/") >= maxDepth:
			return nil
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			must(t, err)
			text = fmt.Sprintf("%x", sha256.Sum256(content))
		case info.Mode()&os.ModeSymlink != 0:
			text, err = os.Readlink(path)
			must(t, err)
			if text == "/etc/passwd" || text == "../../.." {
				return nil
			}
		case !info.IsDir():
			return nil
		}
		mode := info.Mode() &^ (os.ModeSetuid | os.ModeSetgid)
		found[name] = fmt.Sprintf("%v %d:%d %d %s", mode, stat.Uid, stat.Gid, stat.Mtim.Sec, text)
		return nil
	})
	return found
}

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var stat syscall.Stat_t
	must(t, syscall.Lstat(path, &stat))
	return stat.Blocks * 512
}

// What an extractor remembers does not grow with an artifact.
func TestRestoreRemembersNothingOfWhatItBrought(t *testing.T) {
	root := t.TempDir()
	r := restoring(root)
	o := &operation{Path: root + "/there", Type: typeDirectory, MaxBytes: 1 << 20, MaxEntries: 10_000}
	dir, base, _, err := r.place(o.Path)
	must(t, err)
	defer syscall.Close(dir)
	x, err := r.empty(dir, base, o)
	must(t, err)
	defer x.close()
	var many []entry
	for i := range 500 {
		many = append(many, folder(fmt.Sprintf("d%d", i), 0), reg(fmt.Sprintf("f%d", i), "", 0o600), link(tar.TypeLink, fmt.Sprintf("h%d", i), fmt.Sprintf("f%d", i)))
	}
	must(t, x.all(tar.NewReader(bytes.NewReader(tarOf(t, many...)))))
	if len(x.files) != 0 || len(x.closed) != 0 || cap(x.open) > 2 || x.skipped.SkippedCount != 0 {
		t.Fatal(len(x.files), len(x.closed), cap(x.open), x.skipped)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(tarOf(f, folder("./", 0o700), reg("a/b", "x", 0o600), link(tar.TypeSymlink, "a/l", "b"), link(tar.TypeLink, "h", "a/b")))
	f.Add(tarOf(f, link(tar.TypeSymlink, "l", "."), reg("l/x", strings.Repeat("\x00", 9000), 0o4600)))
	f.Add(tarOf(f, folder("d", 0), folder("d/e", 0o1777), reg("d", "", 0o600)))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
		for _, kind := range []string{typeFile, typeDirectory} {
			restoring(root).framed(root+"/in", kind, data, 1)
			names, _ := os.ReadDir(root)
			if content, _ := os.ReadFile(root + "/victim"); string(content) != "precious" || len(names) > 2 {
				t.Fatal(kind, names)
			}
			filepath.Walk(root+"/in", func(path string, info os.FileInfo, err error) error {
				if err == nil && info.Mode()&(os.ModeDevice|os.ModeNamedPipe|os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Fatal(path, info.Mode())
				}
				if target, err := filepath.EvalSymlinks(path); err == nil && !strings.HasPrefix(target, root+"/in") {
					t.Fatal(path, "leads to", target)
				}
				return nil
			})
		}
	})
}

func TestOwnersThatAUserNamespaceHasNotBecomeOurs(t *testing.T) {
	if os.Getenv("TASKFOLD_TEST_INSIDE") == "" {
		inside := exec.Command("unshare", "--user", "--map-root-user", os.Args[0], "-test.run", "^"+t.Name()+"$")
		inside.Env = append(os.Environ(), "TASKFOLD_TEST_INSIDE=1")
		output, err := inside.CombinedOutput()
		if strings.Contains(string(output), "unshare") {
			t.Skipf("needs the right to make a user namespace: %s", output)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return
	}
	root := t.TempDir()
	data := tarOf(t, entry{tar.Header{Typeflag: tar.TypeReg, Name: "f", Uid: 7, Gid: 7, Mode: 0o751}, ""},
		entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "f", Uid: 7, Gid: 7}, ""}, reg("ours", "", 0o600))
	result, err := restoring(root).framed(root+"/there", typeDirectory, data, 3)
	must(t, err)
	info, err := os.Lstat(root + "/there/f")
	must(t, err)
	if stat := info.Sys().(*syscall.Stat_t); result.Owners != 2 || info.Mode() != 0o751 || stat.Uid != 0 {
		t.Fatalf("%+v %v %d", result, info.Mode(), stat.Uid)
	}
}
