package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// frameArchive frames data in chunks of the given size with a true trailer.
func frameArchive(data []byte, chunk int, entries int64) []byte {
	sum := sha256.Sum256(data)
	return frameWith(data, chunk, trailer{entries, int64(len(data)), hex.EncodeToString(sum[:])})
}

func frameWith(data []byte, chunk int, t trailer) []byte {
	var out bytes.Buffer
	for len(data) > 0 {
		n := min(chunk, len(data))
		writeFrame(&out, data[:n])
		data = data[n:]
	}
	writeFrame(&out, nil)
	writeJSON(&out, t)
	return out.Bytes()
}

func TestArchiveSurvivesAnyChunking(t *testing.T) {
	for range 200 {
		data := make([]byte, rand.IntN(5000))
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		var framed bytes.Buffer
		w := newArchiveWriter(&framed)
		for rest := data; len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		w.close(func(n int64, sum string) any { return trailer{7, n, sum} })
		for _, stream := range [][]byte{framed.Bytes(), frameArchive(data, 1+rand.IntN(700), 7)} {
			src := bufio.NewReader(iotest.HalfReader(bytes.NewReader(append(stream, "next"...))))
			r := newArchiveReader(src, 5000, func() {})
			part := data[:rand.IntN(len(data)+1)]
			got := make([]byte, len(part))
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, part) {
				t.Fatalf("read back: %v", err)
			}
			if _, err := r.finish(7, ""); err != nil {
				t.Fatal(err)
			}
			if rest, _ := io.ReadAll(src); string(rest) != "next" {
				t.Fatalf("what follows the archive was touched: %q", rest)
			}
		}
	}
}

func TestArchiveRefuses(t *testing.T) {
	data := []byte(strings.Repeat("tar", 100))
	good := frameArchive(data, 50, 1)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	for name, c := range map[string]struct {
		stream   []byte
		digest   string
		limit    int64
		mismatch bool
	}{
		"other entries":  {frameWith(data, 50, trailer{2, 300, digest}), "", 999, true},
		"other bytes":    {frameWith(data, 50, trailer{1, 299, digest}), "", 999, true},
		"other sha256":   {frameWith(data, 50, trailer{1, 300, strings.Repeat("0", 64)}), "", 999, true},
		"other digest":   {good, strings.Repeat("0", 64), 999, true},
		"too long":       {good, "", 299, false},
		"no trailer":     {good[:len(good)-1], "", 999, false},
		"cut in a chunk": {good[:100], "", 999, false},
		"cut in a head":  {good[:2], "", 999, false},
		"empty":          {nil, "", 999, false},
		"huge chunk":     {[]byte{0, 16, 0, 1}, "", 1 << 30, false},
		"huge trailer":   {[]byte{0, 0, 0, 0, 255, 255, 255, 255}, "", 999, false},
		"no JSON":        {[]byte("\x00\x00\x00\x00\x00\x00\x00\x02no"), "", 999, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newArchiveReader(bufio.NewReader(bytes.NewReader(c.stream)), c.limit, func() {})
			if _, err := r.finish(1, c.digest); err == nil || err == io.EOF || errors.Is(err, errMismatch) != c.mismatch {
				t.Fatalf("got %v", err)
			}
		})
	}
	r := newArchiveReader(bufio.NewReader(bytes.NewReader(good)), 999, func() {})
	if _, err := r.finish(1, digest); err != nil {
		t.Fatal(err)
	}
}

func TestFrameBounds(t *testing.T) {
	frame := binary.BigEndian.AppendUint32(nil, 5)
	frame = append(frame, "hello"...)
	if body, err := readFrame(bytes.NewReader(frame), 5); err != nil || string(body) != "hello" {
		t.Fatal(body, err)
	}
	if _, err := readFrame(bytes.NewReader(frame), 4); err == nil {
		t.Fatal("a frame beyond its limit was read")
	}
	if _, err := readFrame(bytes.NewReader(frame[:7]), 5); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if _, err := readFrame(bytes.NewReader(nil), 5); err != io.EOF {
		t.Fatal(err)
	}
}

func validRequest() map[string]any {
	return map[string]any{
		"protocol": 1, "nonce": strings.Repeat("0a", 16), "phase": "agent", "attachOnly": false, "idleSeconds": 30,
		"prepare": []any{
			map[string]any{"op": "tools", "names": []string{"bash"}, "required": true},
			map[string]any{"op": "user", "name": "app", "required": true},
			map[string]any{"op": "user", "uid": 5},
			map[string]any{"op": "reset", "path": "/tests", "keep": []string{}},
			map[string]any{"op": "directory", "path": "/l", "mode": "0777", "user": nil, "existing": "own"},
			map[string]any{"op": "unpack", "path": "/t", "digest": nil, "maxBytes": 1, "maxEntries": 1, "fileMode": "keep"},
			map[string]any{"op": "write", "path": "/t/x", "mode": "0644", "base64": "aGk="},
		},
		"runs": []any{map[string]any{
			"name": "t", "argv": []string{"bash"}, "env": map[string]string{"A": "b"}, "cwd": nil, "user": map[string]any{"uid": 1},
			"limitSeconds": 0.5, "output": map[string]any{"path": "/o", "headBytes": 1, "tailBytes": 1, "inlineBytes": 5},
			"continueOnFailure": true,
		}},
		"read": []any{map[string]any{"path": "/r", "maxBytes": 8 << 20}},
	}
}

func TestRequestIsStrict(t *testing.T) {
	decode := func(change func(m, op, run map[string]any)) error {
		m := validRequest()
		change(m, m["prepare"].([]any)[5].(map[string]any), m["runs"].([]any)[0].(map[string]any))
		body, _ := json.Marshal(m)
		_, err := parseRequest(body, nil)
		return err
	}
	if err := decode(func(m, op, run map[string]any) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m, op, run map[string]any){
		"protocol":       func(m, op, run map[string]any) { m["protocol"] = 2 },
		"nonce":          func(m, op, run map[string]any) { m["nonce"] = "../../../../../../../../../../../.." },
		"unknown key":    func(m, op, run map[string]any) { m["attachonlyy"] = true },
		"unknown op":     func(m, op, run map[string]any) { op["op"] = "mount" },
		"relative path":  func(m, op, run map[string]any) { op["path"] = "tests" },
		"climbing path":  func(m, op, run map[string]any) { op["path"] = "/tests/../etc" },
		"file mode":      func(m, op, run map[string]any) { op["fileMode"] = "" },
		"negative bytes": func(m, op, run map[string]any) { op["maxBytes"] = -1 },
		"no program":     func(m, op, run map[string]any) { run["argv"] = []string{} },
		"variable":       func(m, op, run map[string]any) { run["env"] = map[string]string{"A=B": "c"} },
		"limit":          func(m, op, run map[string]any) { run["limitSeconds"] = 0 },
		"misspelt limit": func(m, op, run map[string]any) { run["limitSecond"] = 1 },
		"user":           func(m, op, run map[string]any) { run["user"] = map[string]any{"uid": -1} },
		"two users":      func(m, op, run map[string]any) { run["user"] = map[string]any{"uid": 1, "name": "x"} },
		"cwd":            func(m, op, run map[string]any) { run["cwd"] = "x" },
		"inline":         func(m, op, run map[string]any) { run["output"] = map[string]any{"inlineBytes": 1 << 20} },
		"read too much": func(m, op, run map[string]any) {
			m["read"] = []any{map[string]any{"path": "/a", "maxBytes": 8 << 20}, map[string]any{"path": "/b", "maxBytes": 2 << 20}}
		},
		"idle": func(m, op, run map[string]any) { m["idleSeconds"] = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			if decode(change) == nil {
				t.Fatal("accepted")
			}
		})
	}
}

func FuzzRequest(f *testing.F) {
	body, _ := json.Marshal(validRequest())
	f.Add(body)
	f.Add([]byte(`{"protocol":1,"runs":[{"argv":["a"],"limitSeconds":1e308}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &request{}
		if decodeStrict(body, r) == nil && r.validate() == nil {
			for i := range r.Runs {
				r.Runs[i].limit()
			}
		}
	})
}
