package main

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func makeDirectory(path, existing string) (directoryResult, error) {
	o := operation{Op: "directory", Path: path, Mode: "0750", Existing: existing, Links: linksFollow}
	p := &preparation{progress: func() {}}
	results, err := p.run([]operation{o})
	if err != nil {
		return directoryResult{}, err
	}
	return results[0].(directoryResult), nil
}

func TestDirectoryFollowsTheImagesLinks(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"/run/there", "/var", "/opt/v2"} {
		must(t, os.MkdirAll(root+folder, 0o755))
	}
	must(t, os.Chmod(root+"/run/there", 0o711))
	for path, target := range map[string]string{
		"/var/run": "../run", "/app": root + "/opt/current", "/opt/current": "v2", "/later": "./none//deep/", "/self": ".",
		"/up": "self/../" + root[strings.LastIndex(root, "/")+1:] + "/run",
	} {
		must(t, os.Symlink(target, root+path))
	}
	for _, c := range []struct {
		path, reached string
		created       bool
		mode          os.FileMode
	}{
		{"/var/run/there", "/run/there", false, 0o711},
		{"/var/run/new/deep", "/run/new/deep", true, 0o750},
		{"/var/run/new", "/run/new", false, 0o755}, // on the way: a plain folder
		{"/app", "/opt/v2", false, 0o755},
		{"/app/x", "/opt/v2/x", true, 0o750},
		{"/later", "/none/deep", true, 0o750}, // the link leads to what is not there yet
		{"/later", "/none/deep", false, 0o750},
		{"/self/self/y", "/y", true, 0o750},
		{"/up/there", "/run/there", false, 0o711},
	} {
		got, err := makeDirectory(root+c.path, "keep")
		if err != nil || got.Created != c.created {
			t.Errorf("%s: %+v %v", c.path, got, err)
			continue
		}
		if info, err := os.Lstat(root + c.reached); err != nil || info.Mode() != os.ModeDir|c.mode {
			t.Errorf("%s: %v %v", c.path, info, err)
		}
	}
	for _, link := range []string{"/var/run", "/app", "/opt/current", "/later"} {
		if info, err := os.Lstat(root + link); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", link)
		}
	}
	if got, err := makeDirectory(root+"/var/run/there", "own"); err != nil || got.Created {
		t.Fatal(got, err)
	}
	if info, _ := os.Stat(root + "/run/there"); info.Mode() != os.ModeDir|0o750 {
		t.Fatal(info.Mode())
	}
	if got, err := makeDirectory("/", "keep"); err != nil || got.Created {
		t.Fatal(got, err)
	}
}

func TestDirectoryThatFollowsRemovesNothing(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/file", []byte("precious"), 0o600))
	must(t, os.Symlink("file", root+"/link"))
	must(t, os.Symlink("loop", root+"/loop"))
	must(t, syscall.Mkfifo(root+"/fifo", 0o600))
	listener, err := net.Listen("unix", root+"/socket")
	must(t, err)
	defer listener.Close()
	for path, culprit := range map[string]string{
		"/file": "/file", "/file/below": "/file", "/link": "/file", "/link/below": "/file", "/fifo": "/fifo", "/socket/x": "/socket", "/loop": "/loop",
	} {
		_, err := makeDirectory(root+path, "own")
		fail, _ := err.(*failure)
		if fail == nil || fail.Reason != "Prepare" || !strings.Contains(fail.Message, root+path) || !strings.Contains(fail.Message, root+culprit+`"`) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if content, err := os.ReadFile(root + "/link"); err != nil || string(content) != "precious" {
		t.Fatal(string(content), err)
	}
	names, _ := os.ReadDir(root)
	if len(names) != 5 {
		t.Fatal(names)
	}
}

func TestDirectoryReplacesUnlessItIsToldToFollow(t *testing.T) {
	for _, links := range []string{"", linksReplace} {
		root := t.TempDir()
		must(t, os.Mkdir(root+"/elsewhere", 0o755))
		must(t, os.Symlink("elsewhere", root+"/link"))
		must(t, os.WriteFile(root+"/file", nil, 0o600))
		for _, path := range []string{"/link/x", "/file"} {
			o := operation{Op: "directory", Path: root + path, Mode: "0700", Links: links}
			must(t, o.validate())
			result, err := (&preparation{}).directory(&o)
			must(t, err)
			info, err := os.Lstat(root + path)
			must(t, err)
			if !result.(directoryResult).Created || info.Mode() != os.ModeDir|0o700 {
				t.Fatal(path, result, info.Mode())
			}
		}
		if names, _ := os.ReadDir(root + "/elsewhere"); len(names) != 0 {
			t.Fatal(names)
		}
	}
	o := operation{Op: "directory", Path: "/x", Mode: "0700", Links: "folow"}
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), "folow") {
		t.Fatal(err)
	}
}
