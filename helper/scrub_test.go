package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// scrubInPieces writes content in pieces of any size to a scrubber with a buffer of about size.
func scrubInPieces(t *testing.T, values [][]byte, size int, content []byte) ([]byte, int64) {
	t.Helper()
	var out bytes.Buffer
	s := newScrubber(&out, values, size)
	for rest := content; len(rest) > 0; {
		n := 1 + rand.IntN(min(len(rest), 2*size+3))
		_, err := s.Write(rest[:n])
		must(t, err)
		rest = rest[n:]
	}
	must(t, s.Flush())
	return out.Bytes(), s.count
}

// TestScrubIsReplaceAll: values that cannot overlap (each begins with a letter that is nowhere else in any).
func TestScrubIsReplaceAll(t *testing.T) {
	for range 3000 {
		var values [][]byte
		for i := range 1 + rand.IntN(4) {
			value := []byte{"ABCD"[i]}
			for range rand.IntN(9) {
				value = append(value, "xyz"[rand.IntN(3)])
			}
			values = append(values, value)
		}
		var content []byte
		for range rand.IntN(40) {
			value := values[rand.IntN(len(values))]
			content = append(content, [][]byte{value, value[:rand.IntN(len(value))], []byte("yz"), {0}}[rand.IntN(4)]...)
		}
		want, count := bytes.Clone(content), int64(0)
		for _, value := range values {
			count += int64(bytes.Count(want, value))
			want = bytes.ReplaceAll(want, value, bytes.Repeat([]byte("*"), len(value)))
		}
		got, n := scrubInPieces(t, values, 1+rand.IntN(20), content)
		if !bytes.Equal(got, want) || n != count {
			t.Fatalf("%q in %q:\n%q %d, want\n%q %d", values, content, got, n, want, count)
		}
	}
}

// TestScrubHidesEveryOccurrence: values that overlap in every way, each other and themselves.
func TestScrubHidesEveryOccurrence(t *testing.T) {
	for range 5000 {
		values := make([][]byte, 1+rand.IntN(5))
		for i := range values {
			values[i] = letters(1 + rand.IntN(6))
		}
		content := letters(rand.IntN(60))
		want, count, covered := bytes.Clone(content), int64(0), 0
		for at := range content {
			longest := 0
			for _, value := range values {
				if bytes.HasPrefix(content[at:], value) {
					longest = max(longest, len(value))
				}
			}
			if at+longest > covered && longest > 0 {
				covered = at + longest
				count++
			}
			if at < covered {
				want[at] = '*'
			}
		}
		got, n := scrubInPieces(t, values, 1+rand.IntN(20), content)
		if !bytes.Equal(got, want) || n != count {
			t.Fatalf("%q in %q:\n%q %d, want\n%q %d", values, content, got, n, want, count)
		}
	}
}

func letters(n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = "ab"[rand.IntN(2)]
	}
	return text
}

func TestScrubEndsWithTheFile(t *testing.T) {
	var out bytes.Buffer
	s := newScrubber(&out, [][]byte{[]byte("secret")}, 10)
	for _, file := range []string{"a secret, sec", "ret", "secret"} {
		s.Write([]byte(file))
		must(t, s.Flush())
	}
	if out.String() != "a ******, secret******" || s.count != 2 {
		t.Fatal(out.String(), s.count)
	}
}

func contentsOf(t *testing.T, data []byte) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if err == io.EOF {
			return contents
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		contents[header.Name] = string(content)
	}
}

func TestPackScrubs(t *testing.T) {
	root := t.TempDir()
	secret := "hunter22hunter22"
	border := strings.Repeat("x", sendChunk-5) + secret + "y" // across what is read at a time
	must(t, os.MkdirAll(root+"/logs/artifacts/sub", 0o755))
	for name, content := range map[string]string{
		"border": border, secret: "in a name", "reward.json": secret, "reward.json.bak": secret, "artifacts/sub/f": secret, "artifacts2": secret,
	} {
		must(t, os.WriteFile(root+"/logs/"+name, []byte(content), 0o600))
	}
	sparse, err := os.Create(root + "/logs/sparse")
	must(t, err)
	_, err = sparse.WriteAt([]byte(secret), 3<<20-7)
	must(t, err)
	must(t, sparse.Close())
	data, end := packAll(t, &packRequest{
		MaxBytes: 1 << 30, MaxEntries: 100, Roots: []packRoot{{Path: root + "//logs/", As: "l"}}, Scrub: [][]byte{[]byte(secret), []byte("hunter22")},
		ScrubExcept: []string{root + "/logs/reward.json", root + "/logs/./artifacts/"},
	})
	stars := strings.Repeat("*", len(secret))
	got := contentsOf(t, data)
	for name, want := range map[string]string{
		"border": border[:sendChunk-5] + stars + "y", secret: "in a name", "reward.json": secret, "reward.json.bak": stars,
		"artifacts/sub/f": secret, "artifacts2": stars, "sparse": strings.Repeat("\x00", 3<<20-7) + stars,
	} {
		if got["l/"+name] != want {
			t.Errorf("%s: %.100q", name, got["l/"+name])
		}
	}
	sum := sha256.Sum256(data)
	if end.Scrubbed != 4 || end.ChangedCount != 0 || end.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("%+v", end)
	}
}

func TestPackScrubsChangingFiles(t *testing.T) {
	name := t.TempDir() + "/f"
	must(t, os.WriteFile(name, []byte("1 secret22 2 secret22"), 0o600))
	var out bytes.Buffer
	w := newArchiveWriter(&out)
	p := &packer{archive: w, tar: tar.NewWriter(w), buffer: make([]byte, 4), at: &rootResult{}}
	p.sink = &contentSink{tar: p.tar}
	p.scrubWith([][]byte{[]byte("secret22")}, nil)
	for _, size := range []int64{30, 15} { // shrunk, grown
		file, err := os.Open(name)
		must(t, err)
		must(t, p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(size), Size: size}))
		must(t, p.content(file, name, size))
		file.Close()
	}
	must(t, p.tar.Close())
	w.flush()
	got := contentsOf(t, out.Bytes()[4:])
	if got["30"] != "1 ******** 2 ********"+strings.Repeat("\x00", 9) || got["15"] != "1 ******** 2 se" || p.trailer.ChangedCount != 2 {
		t.Fatalf("%q %+v", got, p.trailer)
	}
}

func TestScrubRequests(t *testing.T) {
	long := bytes.Repeat([]byte("x"), maxScrub)
	many := func(n int, value []byte) (values [][]byte) {
		for range n {
			values = append(values, value)
		}
		return values
	}
	for name, c := range map[string]struct {
		scrub  [][]byte
		except []string
		good   bool
	}{
		"none":          {nil, nil, true},
		"most":          {many(8, long), []string{"/", "/logs"}, true},
		"short":         {many(1, []byte("1234567")), nil, false},
		"empty":         {many(1, nil), nil, false},
		"long":          {many(1, append(bytes.Clone(long), 'x')), nil, false},
		"many":          {many(257, long[:8]), nil, false},
		"much":          {many(9, long), nil, false},
		"relative path": {nil, []string{"logs"}, false},
		"climbing path": {nil, []string{"/logs/../x"}, false},
	} {
		r := &packRequest{Protocol: 1, Roots: []packRoot{{Path: "/x", As: "x"}}, MaxBytes: 1, MaxEntries: 1, Scrub: c.scrub, ScrubExcept: c.except}
		if err := r.validate(); (err == nil) != c.good || (err != nil && strings.Contains(err.Error(), "1234567")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := &packRequest{}
	if err := decodeStrict([]byte(`{"scrub":["c2VjcmV0MjI="],"scrubExcept":["/a"]}`), r); err != nil || string(r.Scrub[0]) != "secret22" {
		t.Fatal(err, r)
	}
}

func BenchmarkScrub(b *testing.B) {
	content := bytes.Repeat([]byte("a line of a log that has nothing in it, 12:00:01.123\n"), 20_000)
	for _, n := range []int{1, 5, 256} {
		values := make([][]byte, n)
		for i := range values {
			values[i] = fmt.Appendf(nil, "%x", sha256.Sum256([]byte{byte(i)}))
		}
		s := newScrubber(io.Discard, values, sendChunk)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				s.Write(content)
			}
		})
	}
}
