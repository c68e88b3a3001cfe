package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// expected is the file that the rule of decision C27 asks for, written the simple way.
func expected(all []byte, head, tail int) (file []byte, kept int) {
	if len(all) <= head+tail {
		return all, len(all)
	}
	file = append(file, all[:head]...)
	file = fmt.Appendf(file, "\n[taskfold: %d bytes left out]\n", len(all)-head-tail)
	return append(file, all[len(all)-tail:]...), head + tail
}

func record1(t *testing.T, all []byte, head, tail, inline, chunk int) (file []byte, result outputResult) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	r := newRecorder(&outputSpec{Path: &path, HeadBytes: int64(head), TailBytes: int64(tail), InlineBytes: inline})
	bound := int64(head + tail)
	for rest := all; len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(chunk))
		r.write(rest[:n])
		rest = rest[n:]
		if info, err := os.Stat(path); err != nil || info.Size() > bound {
			t.Fatalf("the file has %d bytes while written, bound %d", info.Size(), bound)
		}
	}
	result = r.finish()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, result
}

func TestOutputEqualsReference(t *testing.T) {
	all := []byte("abcdefghijklmnopqrstuvwxyz0123456789")
	for head := range 6 {
		for tail := range 6 {
			for size := range len(all) {
				file, result := record1(t, all[:size], head, tail, 4, 9)
				want, kept := expected(all[:size], head, tail)
				if !bytes.Equal(file, want) {
					t.Fatalf("head %d tail %d size %d: %q, want %q", head, tail, size, file, want)
				}
				if result.Bytes != int64(size) || result.Kept != int64(kept) || result.Gap != (kept < size) || result.Error != nil {
					t.Fatalf("head %d tail %d size %d: %+v", head, tail, size, result)
				}
				if inline := all[max(0, size-4):size]; !bytes.Equal(result.Inline, inline) {
					t.Fatalf("inline %q, want %q", result.Inline, inline)
				}
			}
		}
	}
}

func TestOutputAcrossMoveBuffers(t *testing.T) {
	for range 30 {
		head, tail := rand.IntN(100), 1+rand.IntN(3*moveBuffer)
		all := make([]byte, rand.IntN(3*tail+head))
		for i := range all {
			all[i] = byte(rand.Uint32())
		}
		file, _ := record1(t, all, head, tail, 0, 70_000)
		if want, _ := expected(all, head, tail); !bytes.Equal(file, want) {
			t.Fatalf("head %d tail %d size %d differs", head, tail, len(all))
		}
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{file: full, head: 10, tail: 10, last: 3}
	r.write([]byte("hello"))
	r.write([]byte("world"))
	result := r.finish()
	if result.Bytes != 10 || result.Kept != 0 || !result.Gap || result.Error == nil || string(result.Inline) != "rld" {
		t.Fatalf("%+v", result)
	}
}

func TestOutputFileCutBySomebody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	r := newRecorder(&outputSpec{Path: &path, HeadBytes: 4, TailBytes: 4})
	r.write([]byte("0123456789"))
	os.Truncate(path, 1)
	if result := r.finish(); result.Error == nil || result.Bytes != 10 {
		t.Fatalf("%+v", result)
	}
}

func TestOutputWithoutFile(t *testing.T) {
	for _, spec := range []*outputSpec{nil, {InlineBytes: 2}} {
		r := newRecorder(spec)
		r.write([]byte("abc"))
		result := r.finish()
		if result.Bytes != 3 || result.Kept != 0 || !result.Gap || result.Error != nil {
			t.Fatalf("%+v", result)
		}
	}
}

// TestAFileInOrderBeforeItsEnd: at any moment it holds the head, a mark and the newest bytes, and the end is as ever.
func TestAFileInOrderBeforeItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	head, tail := 16, 200
	r := newRecorder(&outputSpec{Path: &path, HeadBytes: int64(head), TailBytes: int64(tail)})
	var all []byte
	for range 300 {
		chunk := make([]byte, 1+rand.IntN(150))
		for i := range chunk {
			chunk[i] = byte('a' + rand.IntN(26))
		}
		all = append(all, chunk...)
		r.write(chunk)
		r.order()
		file, err := os.ReadFile(path)
		must(t, err)
		if len(all) <= head+tail {
			if !bytes.Equal(file, all) {
				t.Fatalf("%q, not %q", file, all)
			}
			continue
		}
		mark := file[head : bytes.LastIndexByte(file, '\n')+1]
		newest := all[len(all)-tail:][len(mark):]
		left := 0
		if _, err := fmt.Sscanf(string(mark), "\n[taskfold: %d bytes left out]\n", &left); err != nil {
			t.Fatalf("%q: %v", mark, err)
		}
		if left < len(all)-head-len(newest)-1 || left > len(all)-head-len(newest) || !bytes.Equal(file[:head], all[:head]) ||
			!bytes.HasSuffix(file, newest) || len(file) != head+tail {
			t.Fatalf("%d of %d: %q", left, len(all), file)
		}
	}
	last := bytes.Repeat([]byte("z"), tail)
	r.write(last)
	r.finish()
	file, err := os.ReadFile(path)
	must(t, err)
	if want, _ := expected(append(all, last...), head, tail); !bytes.Equal(file, want) {
		t.Fatalf("%q, not %q", file, want)
	}
}
