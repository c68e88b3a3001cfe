package main

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func restoreOp(path, kind string) map[string]any {
	return map[string]any{"op": "restore", "path": path, "type": kind, "digest": nil, "maxBytes": 1 << 20, "maxEntries": 100}
}

func unpackOp(path string, more ...any) map[string]any {
	o := map[string]any{"op": "unpack", "path": path, "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "normalise"}
	for i := 0; i < len(more); i += 2 {
		o[more[i].(string)] = more[i+1]
	}
	return o
}

// prepared sends the archives and gives the results of the preparation.
func (s *sandbox) prepared(operations []any, archives ...[]byte) reply {
	s.t.Helper()
	request := simple(nonce())
	request["prepare"] = operations
	c := s.phase(request)
	if len(archives) > 0 {
		c.expect("send")
	}
	for _, archive := range archives {
		c.stdin.Write(archive)
	}
	for {
		if r := c.next(); r.Event == "prepared" || r.Event == "failed" {
			return r
		}
	}
}

func TestArtifactsAreRestoredInAPhase(t *testing.T) {
	s := newSandbox(t)
	s.run("mkdir /vol/old; touch /vol/file; ln -s /work /app")
	tree := tarOf(t, folder("./", 0o700), entry{tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o640, Uid: 5, Gid: 6}, "x"}, link(tar.TypeSymlink, "out", "/etc"))
	file := tarOf(t, entry{tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o600, Uid: 5, Gid: 6}, "y"})
	done := s.prepared([]any{restoreOp("/vol", "directory"), restoreOp("/app/new/one", "file"), restoreOp("/app/tree", "directory")},
		frameArchive(tree, 100, 3), frameArchive(file, 100, 1), frameArchive(tree, 100, 3))
	if done.Event != "prepared" || done.Results[0]["skippedCount"] != 1.0 || done.Results[0]["owners"] != 0.0 || done.Results[1]["entries"] != 1.0 {
		t.Fatal(done.raw)
	}
	want := "/vol/f 640 5:6\n/work/new/one 600 5:6\n/work/tree/f 640 5:6\n/work/tree 700 0:0\n/vol 700 0:0\n/work/new 755 0:0\n"
	got := s.run("stat -c '%n %a %u:%g' /vol/f /work/new/one /work/tree/f /work/tree /vol /work/new; ls -A /vol/old 2>/dev/null; mountpoint -q /vol || echo no mount")
	if string(got.Output.Inline) != want {
		t.Fatalf("%s", got.Output.Inline)
	}
	s.run("mkdir -p /work/m; ln -s /tests /work/link")
	for path, reason := range map[string]string{"/": "Prepare", "/tests/x": "Prepare", "/work/link/x": "Prepare", "/proc/x": "Prepare", "/logs": "Prepare"} {
		failed := s.prepared([]any{restoreOp(path, "file")}, frameArchive(file, 100, 1))
		if failed.Reason != reason || !strings.Contains(failed.Message, path) {
			t.Error(path, failed.raw)
		}
	}
	if failed := s.prepared([]any{restoreOp("/work/x", "file")}, frameWith(file, 100, trailer{1, int64(len(file)), "0"})); failed.Reason != "Digest" {
		t.Error(failed.raw)
	}
}

func TestTheWorkingDirectoryMayBeAnArtifact(t *testing.T) {
	s := newSandbox(t)
	s.run("touch /work/old")
	request := simple(nonce(), bash("pwd; echo *; cat f"))
	request["prepare"] = []any{restoreOp("/work", "directory")}
	c := s.phase(request)
	c.expect("send")
	c.stdin.Write(frameArchive(tarOf(t, folder("./", 0o755), reg("f", "x", 0o600)), 100, 2))
	if got := string(c.expect("done").Result.Runs[0].Output.Inline); got != "/work\nf\nx" {
		t.Fatalf("%q", got)
	}
	if got := string(s.run("pwd; echo *").Output.Inline); got != "/work\nf\n" {
		t.Fatalf("%q", got)
	}
}

func TestArtifactsAreRestoredWithoutRoot(t *testing.T) {
	s := newSandboxOf(t, "1000")
	s.run("mkdir -p /work/out/closed; chmod 0 /work/out/closed; ln -s out /work/own")
	tree := tarOf(t, folder("./", 0o500), entry{tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o100, Uid: 7, Gid: 7}, ""},
		entry{tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o400, Uid: 1000, Gid: 1000}, "x"},
		entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "f", Uid: 5, Gid: 5}, ""})
	done := s.prepared([]any{restoreOp("/work/own/closed", "directory")}, frameArchive(tree, 100, 4))
	if done.Event != "prepared" || done.Results[0]["owners"] != 3.0 { // the top, which is root's in the archive, d, and l
		t.Fatal(done.raw)
	}
	got := s.run("cd /work/out; stat -c '%n %a %u' closed closed/d; chmod 700 closed/d; stat -c '%n %a %u' closed/d/f")
	if string(got.Output.Inline) != "closed 500 1000\nclosed/d 100 1000\nclosed/d/f 400 1000\n" {
		t.Fatalf("%s", got.Output.Inline)
	}
	if failed := s.prepared([]any{restoreOp("/etc/x", "file")}, frameArchive(tarOf(t, reg("f", "", 0o600)), 100, 1)); failed.Reason != "Unpack" && failed.Reason != "Prepare" {
		t.Fatal(failed.raw)
	}
}

func TestUnlessTheImageHasTheFile(t *testing.T) {
	s := newSandbox(t)
	archive := frameArchive(tarOf(t, reg("test.sh", "given", 0o600)), 100, 1)
	prepare := []any{map[string]any{"op": "reset", "path": "/tests", "unless": "/tests/test.sh"}, unpackOp("/tests", "unless", "/tests/test.sh"), unpackOp("/tests", "unless", "/tests/test.sh")}
	// The first try brings the file and then breaks: the second must not take it for the image's.
	s.run("touch /tests/other")
	if failed := s.prepared(prepare, archive, frameArchive([]byte("garbage"), 100, 1)); failed.Reason != "Unpack" {
		t.Fatal(failed.raw)
	}
	done := s.prepared(prepare, archive, archive)
	if done.Results[0]["unless"] != nil || done.Results[2]["unless"] != nil || s.file("/tests/test.sh") != "given" || !strings.Contains(s.file("/tests/other"), "no such file") {
		t.Fatal(done.raw)
	}

	s = newSandbox(t)
	s.run("mkdir /opt; mkdir /opt/suite; echo shipped > /opt/real.sh; ln -s /opt/real.sh /opt/suite/test.sh; rmdir /tests; ln -s opt/suite /tests; " +
		"ln -s /opt/real.sh /opt/theirs; chown -h 1000 /opt/theirs")
	done = s.prepared([]any{prepare[0], prepare[1], restoreOp("/work/x", "directory")}, archive, frameArchive(tarOf(t, folder("./", 0o755)), 100, 1))
	if done.Results[0]["unless"] != true || done.Results[1]["unless"] != true || done.Results[1]["entries"] != 1.0 || s.file("/opt/real.sh") != "shipped\n" {
		t.Fatal(done.raw)
	}
	if failed := s.prepared(prepare[:2], frameWith(tarOf(t, reg("x", "", 0o600)), 100, trailer{1, 3, "0"})); failed.Reason != "Digest" {
		t.Fatal("an archive that is thrown away is proven too:", failed.raw)
	}
	if failed := s.prepared([]any{restoreOp("/opt/suite/test.sh", "file")}, archive); failed.Reason != "Prepare" {
		t.Fatal("the image's tests are where their link leads:", failed.raw)
	}
	for _, path := range []string{"/opt/theirs", "/opt/suite", "/none"} {
		if done := s.prepared([]any{map[string]any{"op": "reset", "path": "/work/r", "unless": path}}); done.Results[0]["unless"] != nil {
			t.Error(path, done.raw)
		}
	}
	for _, more := range []map[string]any{{"op": "remove", "unless": "/x"}, {"op": "reset", "unless": "x"}, {"op": "reset", "unless": "/" + strings.Repeat("x", 256)},
		{"op": "restore", "type": "link"}, {"op": "restore", "type": "file", "maxBytes": -1}} {
		more["path"] = "/work/r"
		if refused := s.prepared([]any{more}); refused.Reason != "Protocol" {
			t.Error(more, refused.raw)
		}
	}
}

// archiveOn reads one framed archive from a stream on which more may come.
func (c *connection) archive() (data []byte, end packTrailer) {
	c.t.Helper()
	r := newArchiveReader(c.lines, 1<<40, func() {})
	data, err := io.ReadAll(r)
	must(c.t, err)
	body, err := readFrame(c.lines, maxTrailer)
	must(c.t, err)
	must(c.t, json.Unmarshal(body, &end))
	return data, end
}

func TestPacksAndPhasesOnOneStream(t *testing.T) {
	s := newSandbox(t)
	s.run("echo one > /work/one; echo two > /work/two")
	pack := func(path string, keep bool) map[string]any {
		roots := []any{map[string]any{"path": path, "as": "f"}}
		return map[string]any{"pack": map[string]any{"protocol": 1, "roots": roots, "maxBytes": 1000, "maxEntries": 10, "keep": keep}}
	}
	c := s.phase(pack("one", true)) // relative: below the container's working directory
	ask := func(request map[string]any) {
		body, err := json.Marshal(request)
		must(t, err)
		must(t, writeFrame(c.stdin, body))
	}
	data, end := c.archive()
	if contentsOf(t, data)["f"] != "one\n" || end.Roots[0].Path != "/work/one" || end.Roots[0].Type != typeFile {
		t.Fatalf("%+v", end)
	}
	process := c.inner()
	request := simple(nonce(), bash("echo three > /work/two"))
	request["keep"] = true
	ask(request)
	c.expect("done")
	ask(pack("/work/two", true))
	if data, _ = c.archive(); contentsOf(t, data)["f"] != "three\n" {
		t.Fatal("the second copy is not of what was there then")
	}
	if c.inner() != process {
		t.Fatal("it is another process")
	}
	ask(pack("/none", false))
	if _, end = c.archive(); end.Roots[0].Type != typeMissing {
		t.Fatalf("%+v", end)
	}
	must(t, c.cmd.Wait())
}

// manyNames are more than may stay in memory: 40 MB, names alone.
const manyNames = 200_000

func manyName(i int) string { return fmt.Sprintf("%0200d", i) }

// peakOf is the most memory that the helper behind nsenter has had so far, in KiB. What the kernel says of it at its end
// would count the process of these tests, from which it was started.
func peakOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", childOf(cmd.Process.Pid)))
	must(t, err)
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	var peak int
	if _, err := fmt.Sscan(rest, &peak); err != nil || !found {
		t.Fatalf("%s: %v", status, err)
	}
	return peak
}

func TestMemoryOfACopyOutIsFlat(t *testing.T) {
	s := newSandbox(t)
	must(t, os.Mkdir(s.root+"/work/many", 0o755))
	for i := range manyNames {
		must(t, syscall.Mknod(s.root+"/work/many/"+manyName(i), syscall.S_IFREG|0o600, 0))
	}
	cmd := s.exec("/.taskfold/helper", "pack")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	roots := []any{map[string]any{"path": "/work/many", "as": "."}}
	body, err := json.Marshal(map[string]any{"protocol": 1, "roots": roots, "maxBytes": 1000, "maxEntries": 1_000_000})
	must(t, err)
	must(t, writeFrame(stdin, body))
	var members, peak int
	r := newArchiveReader(bufio.NewReader(stdout), 1<<40, func() {})
	for archive := tar.NewReader(r); ; members++ {
		if _, err := archive.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if members == manyNames*9/10 { // it cannot end before the rest was read
			peak = peakOf(t, cmd)
		}
	}
	io.Copy(io.Discard, r)
	_, err = readFrame(r.src, maxTrailer)
	must(t, err)
	must(t, cmd.Wait())
	if members != manyNames+1 || peak > 32<<10 {
		t.Fatalf("%d entries, %d KiB", members, peak)
	}
}

func TestMemoryOfARestoreIsFlat(t *testing.T) {
	s := newSandbox(t)
	operation := restoreOp("/work/many", "directory")
	operation["maxEntries"] = 1_000_000
	request := simple(nonce(), bash("until [ -e /tmp/seen ]; do sleep 0.02; done"))
	request["prepare"] = []any{operation}
	c := s.phase(request)
	c.expect("send")
	out := newArchiveWriter(c.stdin)
	archive := tar.NewWriter(out)
	for i := range manyNames {
		must(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: manyName(i), Mode: 0o600}))
	}
	must(t, archive.Close())
	must(t, out.close(func(bytes int64, sha256 string) any { return trailer{manyNames, bytes, sha256} }))
	if r := c.expect("prepared"); r.Results[0]["entries"] != float64(manyNames) {
		t.Fatal(r.raw)
	}
	c.expect("started")
	if peak := peakOf(t, c.cmd); peak > 32<<10 {
		t.Fatalf("%d KiB", peak)
	}
	must(t, os.WriteFile(s.root+"/tmp/seen", nil, 0o600))
	c.expect("done")
}
