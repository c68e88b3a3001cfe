package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

type entry struct {
	tar.Header
	content string
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(e.content))
	}
	w.Close()
	return out.Bytes()
}

func unpackInto(path string, mode string, data []byte, entries int64) (*unpackResult, error) {
	src := bufio.NewReader(bytes.NewReader(frameArchive(data, 1000, entries)))
	return unpack(src, &unpackOptions{Path: path, FileMode: mode, MaxBytes: 1 << 20, MaxEntries: 100}, "", func() {})
}

func reg(name, content string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target}, ""}
}

func TestUnpackNormalises(t *testing.T) {
	root := t.TempDir() + "/tests"
	long := strings.Repeat("long", 40) + "/" + strings.Repeat("é", 100)
	data := tarOf(t, reg("./test.sh", "#!", 0o600), reg("a/b/tool", "x", 0o4700), reg("a/b/data", "y", 0o600),
		entry{tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o7700}, ""}, reg(long, "z", 0o600), reg("sub/test.sh", "", 0o600),
		link(tar.TypeLink, "hard", "a/b/data"), link(tar.TypeSymlink, "a/up", "../hard"))
	result, err := unpackInto(root, modeNormalise, data, 8)
	must(t, err)
	if result.Entries != 8 || result.SkippedCount != 0 {
		t.Fatalf("%+v", result)
	}
	for path, mode := range map[string]os.FileMode{
		"test.sh": 0o755, "a/b/tool": 0o755, "a/b/data": 0o644, "d": os.ModeDir | 0o755, "a": os.ModeDir | 0o755, long: 0o644,
		"sub/test.sh": 0o644, "hard": 0o644,
	} {
		info, err := os.Lstat(root + "/" + path)
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s: %v, want %v", path, info.Mode(), mode)
		}
	}
	if content, err := os.ReadFile(root + "/a/up"); err != nil || string(content) != "y" {
		t.Error(string(content), err)
	}
}

func TestUnpackKeeps(t *testing.T) {
	root := t.TempDir()
	when := time.Unix(1_000_000_000, 0)
	data := tarOf(t,
		entry{tar.Header{Typeflag: tar.TypeDir, Name: "closed", Mode: 0o555, Uid: 7, Gid: 8}, ""},
		entry{tar.Header{Typeflag: tar.TypeReg, Name: "closed/f", Mode: 0o6755, Uid: 5, Gid: 6, ModTime: when}, "abc"})
	_, err := unpackInto(root, modeKeep, data, 2)
	must(t, err)
	defer os.Chmod(root+"/closed", 0o755)
	folder, _ := os.Lstat(root + "/closed")
	file, _ := os.Lstat(root + "/closed/f")
	if folder.Mode() != os.ModeDir|0o555 || file.Mode() != 0o755 || !file.ModTime().Equal(when) {
		t.Fatal(folder.Mode(), file.Mode(), file.ModTime())
	}
	if os.Geteuid() == 0 && (file.Sys().(*syscall.Stat_t).Uid != 5 || folder.Sys().(*syscall.Stat_t).Gid != 8) {
		t.Fatal("owners are not kept")
	}
}

func TestUnpackRefusesEvil(t *testing.T) {
	big := tarOf(t, reg("big", strings.Repeat("x", 1<<20+1), 0o600))
	var many []entry
	for i := range 101 {
		many = append(many, reg(fmt.Sprint(i), "", 0o600))
	}
	bomb := tarOf(t, reg("x", "", 0o600))
	copy(bomb[124:136], "77777777777\x00") // a size of 8 GiB in the header, and nothing behind it
	sum := 0
	copy(bomb[148:156], "        ")
	for _, b := range bomb[:512] {
		sum += int(b)
	}
	copy(bomb[148:156], fmt.Sprintf("%06o\x00 ", sum))
	for name, data := range map[string][]byte{
		"absolute":         tarOf(t, reg("/etc/x", "", 0o600)),
		"climbing":         tarOf(t, reg("a/../../x", "", 0o600)),
		"climbing folder":  tarOf(t, entry{tar.Header{Typeflag: tar.TypeDir, Name: "../x", Mode: 0o755}, ""}),
		"climbing link":    tarOf(t, link(tar.TypeSymlink, "../x", "y")),
		"hard link out":    tarOf(t, link(tar.TypeLink, "x", "../victim")),
		"hard link abs":    tarOf(t, link(tar.TypeLink, "x", "/etc/passwd")),
		"too many entries": tarOf(t, many...),
		"too many bytes":   big,
		"size bomb":        bomb,
		"deep":             tarOf(t, reg(strings.Repeat("d/", 300)+"x", "", 0o600)),
		"long":             tarOf(t, reg(strings.Repeat("d", 300), "", 0o600)),
		"garbage":          bytes.Repeat([]byte("garbage!"), 200),
		"cut":              tarOf(t, reg("x", "content", 0o600))[:515],
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
			_, err := unpackInto(root+"/in", modeKeep, data, 1)
			var fail *failure
			if !errors.As(err, &fail) || fail.Reason != "Unpack" {
				t.Fatal(err)
			}
			names, _ := os.ReadDir(root)
			if content, _ := os.ReadFile(root + "/victim"); string(content) != "precious" || len(names) > 2 {
				t.Fatal(names)
			}
		})
	}
}

func TestUnpackLeavesOut(t *testing.T) {
	root := t.TempDir()
	data := tarOf(t,
		link(tar.TypeSymlink, "abs", "/etc/passwd"), link(tar.TypeSymlink, "out", "../x"), link(tar.TypeSymlink, "a/out", "../../x"),
		link(tar.TypeSymlink, "tricky", "a/../x"), link(tar.TypeLink, "hard", "unknown"),
		entry{tar.Header{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1, Devminor: 3}, ""},
		entry{tar.Header{Typeflag: tar.TypeFifo, Name: "fifo"}, ""}, reg("good", "", 0o600))
	result, err := unpackInto(root, modeKeep, data, 8)
	must(t, err)
	if result.SkippedCount != 7 || len(result.Skipped) != 7 {
		t.Fatalf("%+v", result)
	}
	filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if info.Mode().IsRegular() != (info.Name() == "good") && !info.IsDir() {
			t.Error(path)
		}
		return nil
	})
}

func TestUnpackFollowsNothingThatItOrOthersMade(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/outside", 0o755))
	must(t, os.WriteFile(root+"/outside/f", []byte("precious"), 0o600))
	must(t, os.Mkdir(root+"/in", 0o755))
	must(t, os.Symlink(root+"/outside", root+"/in/planted"))
	must(t, os.Symlink(root+"/outside/f", root+"/in/file"))
	must(t, os.Link(root+"/outside/f", root+"/in/hard"))
	must(t, os.MkdirAll(root+"/in/folder/full", 0o755))
	data := tarOf(t, reg("planted/f", "1", 0o600), reg("file", "2", 0o600), reg("hard", "3", 0o600), reg("folder", "4", 0o600),
		link(tar.TypeSymlink, "own", "folder2"), reg("own/f", "5", 0o600), reg("own/g", "6", 0o600),
		link(tar.TypeSymlink, "own", "."), reg("own/h", "7", 0o600))
	_, err := unpackInto(root+"/in", modeKeep, data, 9)
	must(t, err)
	for path, want := range map[string]string{
		"outside/f": "precious", "in/planted/f": "1", "in/file": "2", "in/hard": "3", "in/folder": "4", "in/own/h": "7",
	} {
		if content, err := os.ReadFile(root + "/" + path); err != nil || string(content) != want {
			t.Errorf("%s: %q %v", path, content, err)
		}
	}
}

func TestUnpackChecksDigest(t *testing.T) {
	data := tarOf(t, reg("x", "", 0o600))
	_, err := unpackInto(t.TempDir(), modeKeep, data, 2)
	var fail *failure
	if !errors.As(err, &fail) || fail.Reason != "Digest" {
		t.Fatal(err)
	}
}

func packAll(t *testing.T, request *packRequest) (data []byte, end packTrailer) {
	t.Helper()
	var framed bytes.Buffer
	must(t, request.resolve(currentDirectory))
	must(t, pack(&framed, request))
	r := newArchiveReader(bufio.NewReader(&framed), 1<<40, func() {})
	data, err := io.ReadAll(r)
	must(t, err)
	body, err := readFrame(r.src, maxTrailer)
	must(t, err)
	must(t, json.Unmarshal(body, &end))
	if end.Bytes != int64(len(data)) {
		t.Fatalf("trailer says %d bytes of %d", end.Bytes, len(data))
	}
	return data, end
}

func TestPackThenUnpackIsTheSame(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/a/b", 0o750))
	must(t, os.WriteFile(root+"/a/b/big", bytes.Repeat([]byte("0123456789"), 30_000), 0o640))
	must(t, os.WriteFile(root+"/a/\xff\nodd", []byte("odd"), 0o600))
	must(t, os.Symlink("b/big", root+"/a/link"))
	must(t, syscall.Mkfifo(root+"/a/fifo", 0o600))
	listener, err := net.Listen("unix", root+"/a/socket")
	must(t, err)
	defer listener.Close()
	data, end := packAll(t, &packRequest{MaxBytes: 1 << 20, MaxEntries: 100, Roots: []packRoot{
		{Path: root + "/a", As: "verifier"}, {Path: root + "/none", As: "none"}, {Path: root + "/a/link/x", As: "x"}, {Path: root + "/a/b/big", As: "one/file"},
		{Path: root + "/a/link", As: "l"},
	}})
	if end.Entries != 6 || end.SkippedCount != 5 || end.Truncated || end.ChangedCount != 0 {
		t.Fatalf("%+v", end)
	}
	result, err := unpackInto(root+"/out", modeKeep, data, 6)
	must(t, err)
	if result.SkippedCount != 0 {
		t.Fatalf("%+v", result)
	}
	for path, size := range map[string]int64{"verifier/b/big": 300_000, "verifier/\xff\nodd": 3, "one/file": 300_000} {
		if info, err := os.Lstat(root + "/out/" + path); err != nil || info.Size() != size {
			t.Error(path, err)
		}
	}
	if target, _ := os.Readlink(root + "/out/verifier/link"); target != "b/big" {
		t.Error(target)
	}
}

func TestPackLimits(t *testing.T) {
	root := t.TempDir()
	for i := range 300 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%03d", root, i), bytes.Repeat([]byte("x"), i), 0o600))
	}
	_, end := packAll(t, &packRequest{MaxBytes: 1 << 30, MaxEntries: 10, Roots: []packRoot{{Path: root, As: "r"}}})
	if end.Entries != 10 || !end.Truncated {
		t.Fatalf("%+v", end)
	}
	_, end = packAll(t, &packRequest{MaxBytes: 1000, MaxEntries: 1000, Roots: []packRoot{{Path: root, As: "."}}})
	if !end.Truncated || end.SkippedCount == 0 || len(end.Skipped) > maxListed || end.Skipped[0].Reason != "limit" {
		t.Fatalf("%+v", end)
	}
	_, end = packAll(t, &packRequest{MaxBytes: 1 << 30, MaxEntries: 1000, MaxFileBytes: ptr(int64(298)), Roots: []packRoot{{Path: root, As: "."}}})
	if end.Truncated || end.Entries != 300 || end.SkippedCount != 1 || end.Skipped[0].Reason != "tooLarge" {
		t.Fatalf("%+v", end)
	}
}

func TestPackContentOfChangingFile(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/f", []byte("short"), 0o600))
	var out bytes.Buffer
	w := newArchiveWriter(&out)
	p := &packer{archive: w, tar: tar.NewWriter(w), buffer: make([]byte, 4), at: &rootResult{}}
	p.sink = &contentSink{tar: p.tar}
	for path, size := range map[string]int64{"shrunk": 10, "grown": 3} {
		file, err := os.Open(root + "/f")
		must(t, err)
		must(t, p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Size: size}))
		must(t, p.content(file, path, size))
		file.Close()
	}
	must(t, p.tar.Close())
	if p.trailer.ChangedCount != 2 || len(p.trailer.Changed) != 2 {
		t.Fatalf("%+v", p.trailer)
	}
}

func TestStaysInside(t *testing.T) {
	for _, c := range []struct {
		dir, target string
		want        bool
	}{
		{".", "a", true}, {".", "a/b", true}, {".", "..", false}, {"a", "..", true}, {"a", "../b", true}, {"a", "../../b", false},
		{"a/b", "../..", true}, {"a/b", "../../..", false}, {"a/b", "c/../d", false}, {".", "/etc", false}, {".", "", false},
		{".", "./a/.", true}, {".", "a//b", true}, {".", "a/..", false},
	} {
		if got := staysInside(c.dir, c.target); got != c.want {
			t.Errorf("%s -> %s: %v", c.dir, c.target, got)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, reg("a/b", "x", 0o600), link(tar.TypeSymlink, "a/l", "b"), link(tar.TypeLink, "h", "a/b")))
	f.Add(tarOf(f, link(tar.TypeSymlink, "l", "."), reg("l/x", "x", 0o600)))
	f.Add(tarOf(f, reg("../x", "", 0o600)))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		must(t, os.WriteFile(root+"/victim", []byte("precious"), 0o600))
		unpackInto(root+"/in", modeKeep, data, 1)
		names, _ := os.ReadDir(root)
		if content, _ := os.ReadFile(root + "/victim"); string(content) != "precious" || len(names) > 2 {
			t.Fatal(names)
		}
		filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode()&(os.ModeDevice|os.ModeNamedPipe|os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Fatal(path, info.Mode())
			}
			return nil
		})
	})
}
