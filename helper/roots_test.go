package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// namesOf gives the members of a tar by name.
func namesOf(t testing.TB, data []byte) map[string]*tar.Header {
	t.Helper()
	names, r := map[string]*tar.Header{}, tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = h
	}
}

func TestEachRootIsToldOf(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/d/sub", 0o750))
	must(t, os.WriteFile(root+"/d/sub/f", []byte("12345"), 0o600))
	must(t, os.WriteFile(root+"/file", []byte("abc"), 0o640))
	must(t, os.Symlink("d", root+"/link"))
	must(t, os.Symlink("loop", root+"/loop"))
	must(t, syscall.Mkfifo(root+"/fifo", 0o600))
	must(t, syscall.Mkfifo(root+"/d/fifo", 0o600))
	t.Chdir(root + "/d")
	sum := sha256.Sum256([]byte("abc"))
	digest := hex.EncodeToString(sum[:])
	want := []struct {
		asked string
		rootResult
	}{
		{"/d", rootResult{Type: typeDirectory, Entries: 3, Size: 5, SkippedCount: 1}},
		{"//file/", rootResult{Type: typeFile, Entries: 1, Size: 3, SHA256: &digest}},
		{"/none/x", rootResult{Type: typeMissing, SkippedCount: 1}},
		{"/link", rootResult{Type: typeLink, SkippedCount: 1}},
		{"/link/sub", rootResult{Type: typeLink, SkippedCount: 1}},
		{"/loop", rootResult{Type: typeLink, SkippedCount: 1}},
		{"/fifo", rootResult{Type: typeSpecial, SkippedCount: 1}},
		{"/d/sub", rootResult{Type: typeDirectory, Entries: 2, Size: 5}}, // asked for as "sub", below the working directory
	}
	request := &packRequest{MaxBytes: 1 << 20, MaxEntries: 100}
	for i, each := range want {
		request.Roots = append(request.Roots, packRoot{Path: root + each.asked, As: fmt.Sprint(i)})
	}
	request.Roots[len(want)-1].Path = "./sub"
	data, end := packAll(t, request)
	for i, each := range want {
		got := end.Roots[i]
		each.Path = strings.TrimSuffix(root+strings.ReplaceAll(each.asked, "//", "/"), "/")
		if (got.SHA256 == nil) != (each.SHA256 == nil) || (got.SHA256 != nil && *got.SHA256 != *each.SHA256) {
			t.Errorf("%s: digest %v", each.asked, got.SHA256)
		}
		if got.SHA256, each.SHA256 = nil, nil; got != each.rootResult {
			t.Errorf("%s: %+v", each.asked, got)
		}
	}
	for name := range namesOf(t, data) {
		if name[0] != '0' && name[0] != '1' && name[0] != '7' {
			t.Error(name, "is of a root that is none")
		}
	}
}

func TestRootsBehindTheLastEntryAreToldOf(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(root+"/d", 0o755))
	must(t, os.WriteFile(root+"/f", []byte("abc"), 0o640))
	_, end := packAll(t, &packRequest{MaxBytes: 100, MaxEntries: 1, Roots: []packRoot{
		{Path: root + "/d", As: "d"}, {Path: root + "/f", As: "f"}, {Path: root + "/none", As: "n"},
	}})
	if !end.Truncated || end.Entries != 1 || end.Roots[1].Type != typeFile || end.Roots[1].Entries != 0 || end.Roots[2].Type != typeMissing {
		t.Fatalf("%+v", end)
	}
}

func TestWithoutAWorkingDirectoryARelativeRootIsMissing(t *testing.T) {
	request := &packRequest{MaxEntries: 10, Roots: []packRoot{{Path: "out", As: "out"}}}
	must(t, request.resolve(func() (string, error) { return "", errors.New("it is gone") }))
	var framed bytes.Buffer
	must(t, pack(&framed, request))
	if !strings.Contains(framed.String(), `"roots":[{"path":"out","type":"missing"`) {
		t.Fatal(framed.String())
	}
}

func TestRootsAreRefused(t *testing.T) {
	for _, path := range []string{"", "../x", "/a/../b", strings.Repeat("a", maxPath), "a\x00"} {
		r := packRequest{Protocol: 1, Roots: []packRoot{{Path: path, As: "x"}}}
		if r.validate() == nil {
			t.Errorf("%.20q", path)
		}
	}
	long := packRequest{Roots: make([]packRoot, maxRoots)}
	for i := range long.Roots {
		long.Roots[i].Path = "/" + strings.Repeat("x", 300)
	}
	if long.resolve(currentDirectory) == nil {
		t.Error("paths that do not fit into a trailer")
	}
}

func TestPathsInATrailerAreTextAndFewEnough(t *testing.T) {
	root := t.TempDir()
	for i := range 2 * maxListed {
		must(t, syscall.Mkfifo(fmt.Sprintf("%s/%03d\xff%s", root, i, strings.Repeat("\x01", 200)), 0o600))
	}
	_, end := packAll(t, &packRequest{MaxBytes: 1, MaxEntries: 1000, Roots: []packRoot{{Path: root, As: "."}}})
	if end.SkippedCount != 2*maxListed || len(end.Skipped) != maxListed || !strings.Contains(end.Skipped[0].Path, `\xff`) {
		t.Fatal(end.SkippedCount, len(end.Skipped))
	}
	room := &listRoom{left: 10}
	if text, ok := room.take("\xffab"); !ok || text != `\xffab` {
		t.Fatal(text, ok)
	}
	if _, ok := room.take("a"); ok || room.left != 0 {
		t.Fatal("there is no end of room")
	}
}
