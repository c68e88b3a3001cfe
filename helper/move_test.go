package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func move(path, to string, keep ...string) (moveResult, error) {
	p := &preparation{progress: func() {}}
	results, err := p.run([]operation{{Op: "move", Path: path, To: to, Keep: keep}})
	if err != nil {
		return moveResult{}, err
	}
	return results[0].(moveResult), nil
}

func TestMoveKeepsNothingButWhatItIsTold(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/from/folder/deep", 0o755))
	must(t, os.MkdirAll(root+"/from/kept but a folder", 0o755))
	for _, name := range []string{"/from/a", "/from/folder/deep/b", "/from/kept", "/outside"} {
		must(t, os.WriteFile(root+name, []byte(name), 0o644))
	}
	must(t, os.Symlink(root+"/outside", root+"/from/link"))
	got, err := move(root+"/from", root+"/steps/one/logs", "kept", "kept but a folder")
	must(t, err)
	if got.Moved != 4 || got.Error != "" {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"/steps/one/logs/a", "/steps/one/logs/folder/deep/b", "/from/kept", "/outside"} {
		if _, err := os.Lstat(root + name); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Lstat(root + "/steps/one/logs/link"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("a link is moved as it is: %v %v", info, err)
	}
	if info, err := os.Stat(root + "/steps/one/logs"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("what was kept is ours alone: %v %v", info, err)
	}
}

func TestMoveMayBeRepeatedAndReplacesWhatIsInItsWay(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/to/a/planted", 0o755))
	must(t, os.WriteFile(root+"/to/earlier", nil, 0o644))
	must(t, os.MkdirAll(root+"/from", 0o755))
	must(t, os.WriteFile(root+"/from/a", []byte("ours"), 0o644))
	for _, moved := range []int{1, 0} { // the second time there is nothing left
		if got, err := move(root+"/from", root+"/to"); err != nil || got.Moved != moved || got.Error != "" {
			t.Errorf("%+v %v", got, err)
		}
	}
	content, err := os.ReadFile(root + "/to/a")
	if err != nil || string(content) != "ours" {
		t.Errorf("%q %v", content, err)
	}
	if _, err := os.Stat(root + "/to/earlier"); err != nil {
		t.Error(err)
	}
}

func TestMoveFollowsNothing(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/elsewhere", 0o755))
	must(t, os.WriteFile(root+"/elsewhere/file", nil, 0o644))
	must(t, os.Symlink(root+"/elsewhere", root+"/link"))
	must(t, os.WriteFile(root+"/plain", nil, 0o644))
	for _, path := range []string{"/link", "/plain", "/missing", "/plain/below"} {
		if got, err := move(root+path, root+"/to"); err != nil || got.Moved != 0 || got.Error != "" {
			t.Errorf("%s: %+v %v", path, got, err)
		}
	}
	must(t, os.MkdirAll(root+"/from", 0o755))
	must(t, os.WriteFile(root+"/from/a", nil, 0o644))
	if got, err := move(root+"/from", root+"/link/to"); err != nil || got.Moved != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if info, err := os.Lstat(root + "/link"); err != nil || !info.IsDir() {
		t.Errorf("a planted link gives way: %v %v", info, err)
	}
	if _, err := os.Stat(root + "/elsewhere/to"); err == nil {
		t.Error("a link was followed")
	}
}

func unpackAs(t *testing.T, path string, owner *identity, follow bool, entries ...entry) error {
	t.Helper()
	src := bufio.NewReader(bytes.NewReader(frameArchive(tarOf(t, entries...), 1000, int64(len(entries)))))
	options := &unpackOptions{
		Path: path, FileMode: modeNormalise, MaxBytes: 1 << 20, MaxEntries: 100, Owner: owner, Follow: follow,
	}
	_, err := unpack(src, options, "", func() {})
	return err
}

func TestUnpackGivesAwayWhatItBrings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/app/there", 0o755))
	owner := &identity{UID: 1234, GID: 4321}
	files := []entry{reg("setup.sh", "x", 0o644), reg("new/deep/file", "y", 0o600), reg("there/z", "", 0o644)}
	must(t, unpackAs(t, root+"/app", owner, false, files...))
	for path, uid := range map[string]uint32{
		"/app": 0, "/app/there": 0, "/app/setup.sh": 1234, "/app/new": 1234, "/app/new/deep": 1234, "/app/new/deep/file": 1234,
		"/app/there/z": 1234,
	} {
		var stat syscall.Stat_t
		if must(t, syscall.Lstat(root+path, &stat)); stat.Uid != uid {
			t.Errorf("%s belongs to %d, not to %d", path, stat.Uid, uid)
		}
	}
}

func TestUnpackFollowsTheImagesLinksAndNoOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can plant another's link")
	}
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/srv/app", 0o755))
	must(t, os.Symlink(root+"/srv/app", root+"/app"))
	must(t, unpackAs(t, root+"/app", nil, true, reg("file", "x", 0o644)))
	if _, err := os.Stat(root + "/srv/app/file"); err != nil {
		t.Error(err)
	}
	must(t, os.Symlink(root+"/srv/app", root+"/planted"))
	must(t, os.Lchown(root+"/planted", 1000, 1000))
	err := unpackAs(t, root+"/planted", nil, true, reg("other", "x", 0o644))
	if err == nil || !strings.HasPrefix(err.Error(), "Prepare: ") || !strings.Contains(err.Error(), "a link of user 1000") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(root + "/srv/app/other"); err == nil {
		t.Error("a planted link was followed")
	}
}

func TestUnpackOperationsAreChecked(t *testing.T) {
	for text, o := range map[string]operation{
		"not an absolute path": {Op: "unpack", FileMode: modeNormalise},
		"neither replace":      {Op: "unpack", FileMode: modeNormalise, Path: "/a", Links: "none"},
		"only with fileMode":   {Op: "unpack", FileMode: modeKeep, Path: "/a", User: &userSpec{UID: new(int)}},
		"to: ":                 {Op: "move", Path: "/a", To: "b"},
	} {
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, o := range []operation{
		{Op: "unpack", FileMode: modeNormalise, Links: linksFollow}, // the working directory
		{Op: "unpack", FileMode: modeNormalise, Path: "/a", Links: linksFollow, User: &userSpec{UID: new(int)}},
		{Op: "move", Path: "/a", To: "/b"},
	} {
		must(t, o.validate())
	}
}

func TestOldResultsGiveWayAndNothingStartsTwice(t *testing.T) {
	j := newJournal()
	nonce := func(n int) string { return fmt.Sprintf("%032x", n) }
	for n := range 500 {
		p, outcome := j.claim(nonce(n), false, nil)
		if outcome != claimGranted {
			t.Fatalf("phase %d: %s", n, outcome)
		}
		j.start(p, nil, &work{})
		j.finish(p, nil, []fileResult{{Content: make([]byte, 4<<20)}})
		if j.kept > maxKept {
			t.Fatalf("%d bytes are kept", j.kept)
		}
	}
	if _, outcome := j.claim(nonce(0), false, nil); outcome != claimForgotten {
		t.Errorf("an old phase: %s", outcome)
	}
	for n := 500 - maxRecent; n < 500; n++ {
		if p, outcome := j.claim(nonce(n), true, nil); outcome != claimAttach || p.result == nil {
			t.Errorf("phase %d: %s", n, outcome)
		}
	}
}
