package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPhaseFromClaimToDone(t *testing.T) {
	s := newSandbox(t)
	data := tarOf(t, reg("test.sh", "cat /tests/data; echo \"$FROM $SECRET $HOME $PWD $0\"; id -u; echo 0.5 > /tests/reward; exit 3", 0o600),
		reg("data", "data\n", 0o600))
	request := simple(nonce(), map[string]any{"name": "test", "argv": []string{"bash", "/tests/test.sh"}, "env": map[string]string{"SECRET": "s3"},
		"output": map[string]any{"path": "/logs/verifier/out.txt", "headBytes": 1000, "tailBytes": 1000, "inlineBytes": 10}, "continueOnFailure": false},
		bash("not run"))
	request["prepare"] = []any{
		map[string]any{"op": "tools", "names": []string{"bash", "nonesuch"}},
		map[string]any{"op": "user", "name": "app"}, map[string]any{"op": "user", "name": "nobody-here"},
		map[string]any{"op": "reset", "path": "/tests", "keep": []string{}},
		map[string]any{"op": "directory", "path": "/logs/agent", "mode": "0777", "user": map[string]any{"name": "app"}, "existing": "own"},
		map[string]any{"op": "unpack", "path": "/tests", "digest": nil, "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "normalise"},
		map[string]any{"op": "write", "path": "/logs/agent/t.json", "mode": "0644", "base64": "e30="},
	}
	request["read"] = []any{map[string]any{"path": "/tests/reward", "maxBytes": 10}, map[string]any{"path": "/none", "maxBytes": 10}}
	c := s.phase(request)
	if c.next().Event != "send" {
		t.Fatal("no send")
	}
	c.stdin.Write(frameArchive(data, 100, 2))
	prepared := c.next()
	if prepared.Event != "prepared" || len(prepared.Results) != 7 || fmt.Sprint(prepared.Results[0]["missing"]) != "[nonesuch]" ||
		prepared.Results[1]["home"] != "/home/app" || prepared.Results[2]["error"] == nil || prepared.Results[5]["entries"] != 2.0 {
		t.Fatal(prepared.raw)
	}
	if started := c.next(); started.Event != "started" || started.Attached {
		t.Fatal(started.raw)
	}
	done := c.next()
	r := done.Result
	if len(r.Runs) != 1 || *r.Runs[0].ReturnCode != 3 || r.Runs[0].Signal != nil || string(r.Files[0].Content) != "0.5\n" || r.Files[1].State != "missing" {
		t.Fatal(done.raw)
	}
	if out := s.file("/logs/verifier/out.txt"); out != "data\nimage s3  /work /tests/test.sh\n0\n" || string(r.Runs[0].Output.Inline) != out[len(out)-10:] {
		t.Fatalf("%q", out)
	}
	must(t, c.cmd.Wait())
	info, err := os.Stat(s.root + "/logs/agent")
	must(t, err)
	if info.Mode() != os.ModeDir|0o777 || info.Sys().(*syscall.Stat_t).Uid != 1000 {
		t.Fatal(info.Mode())
	}
	// The same request again, the files changed meanwhile: the same answer, nothing prepared, nothing sent.
	s.run("echo 1.0 > /tests/reward")
	again := s.phase(request)
	if started := again.next(); started.Event != "started" || !started.Attached {
		t.Fatal(started.raw)
	}
	if got := again.next(); got.raw != done.raw {
		t.Fatalf("%s\n%s", got.raw, done.raw)
	}
}

func TestPhaseWithoutRunsIsDoneAtOnce(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce())
	request["runs"] = nil
	if r := s.phase(request).expect("done"); len(r.Result.Runs) != 0 || string(r.Result.Prepared) != "[]" {
		t.Fatal(r.raw)
	}
}

func TestClaimIsReleasedWithItsConnectionAndHeldUntilThen(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash("echo ran >> /work/ran"))
	request["prepare"] = []any{map[string]any{"op": "unpack", "path": "/tests", "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "keep"}}
	first := s.phase(request)
	first.expect("send")
	for _, attachOnly := range []bool{false, true} {
		request["attachOnly"] = attachOnly
		if r := s.phase(request).next(); r.Reason != "Busy" {
			t.Fatal(r.raw)
		}
	}
	first.kill(syscall.SIGKILL)
	s.until("the claim is unknown again", func() bool { return s.phase(request).next().Event == "unknown" })
	request["attachOnly"] = false
	second := s.phase(request)
	second.expect("send")
	second.stdin.Close() // ends early: failed, and released once more
	if r := second.next(); r.Reason != "Unpack" {
		t.Fatal(r.raw)
	}
	third := s.phase(request)
	third.expect("send")
	third.stdin.Write(frameArchive(tarOf(t, reg("x", "", 0o600)), 100, 7))
	if r := third.next(); r.Reason != "Digest" {
		t.Fatal(r.raw)
	}
	fourth := s.phase(request)
	fourth.expect("send")
	fourth.stdin.Write(frameArchive(tarOf(t, reg("x", "", 0o600)), 100, 1))
	fourth.expect("done")
	if ran := s.file("/work/ran"); ran != "ran\n" {
		t.Fatalf("ran: %q", ran)
	}
}

func TestStoppedClaimantCannotGoOnLater(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash("true"))
	request["idleSeconds"] = 0.3
	request["prepare"] = []any{map[string]any{"op": "unpack", "path": "/tests", "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "keep"}}
	silent := s.phase(request)
	silent.expect("send")
	if r := silent.next(); r.Reason != "Idle" {
		t.Fatal(r.raw)
	}
	request["idleSeconds"] = 5 // long enough to stop the next one before it gives up by itself
	var stopped *connection
	s.until("the claim is free", func() bool { stopped = s.phase(request); return stopped.next().Event == "send" })
	stopped.kill(syscall.SIGSTOP)
	s.until("another may claim", func() bool {
		r := s.phase(request).next()
		return r.Event == "send"
	})
	// nsenter has stopped with it and cannot collect it.
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", stopped.inner()))
	if !bytes.Contains(status, []byte("State:\tZ")) {
		t.Fatalf("another claimed while the stopped one could go on: %s", status)
	}
}

func TestManyAttachAndTheRunOutlivesItsClient(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash("echo x >> /work/count; while [ ! -e /work/go ]; do sleep 0.02; done; echo end"))
	first := s.phase(request)
	first.expect("started")
	var others []*connection
	for range 5 {
		c := s.phase(request)
		if r := c.next(); r.Event != "started" || !r.Attached {
			t.Fatal(r.raw)
		}
		others = append(others, c)
	}
	first.kill(syscall.SIGKILL)
	others[0].kill(syscall.SIGKILL)
	must(t, os.WriteFile(s.root+"/work/go", nil, 0o600))
	for _, c := range others[1:] {
		if r := c.expect("done"); string(r.Result.Runs[0].Output.Inline) != "end\n" {
			t.Fatal(r.raw)
		}
	}
	request["attachOnly"] = true
	s.phase(request).expect("done")
	if count := s.file("/work/count"); count != "x\n" {
		t.Fatalf("started %q", count)
	}
}

func TestNobodyInsideCanEndTheSupervisor(t *testing.T) {
	s := newSandbox(t)
	result := s.run(`for n in $(seq 1 64); do kill -$n 1 2>/dev/null; done
		kill -9 1; kill -TERM 1; kill -INT 1; cat /proc/1/environ >/dev/null && echo READ; sleep 0.2; kill -0 1 && echo alive`)
	if inline := string(result.Output.Inline); !strings.Contains(inline, "alive") {
		t.Fatal(inline)
	}
	// From outside, TERM ends it at once.
	must(t, syscall.Kill(s.pid, syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- s.init.Wait() }()
	select {
	case err := <-ended:
		if code := s.init.ProcessState.ExitCode(); code != stopped {
			t.Fatalf("it ended with %d (%v)", code, err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

func TestInsidersAreNotServed(t *testing.T) {
	s := newSandbox(t)
	body, _ := json.Marshal(simple(nonce(), bash("true")))
	must(t, os.WriteFile(s.root+"/work/request", append([]byte{0, 0, 0, byte(len(body))}, body...), 0o600))
	for _, user := range []any{nil, map[string]any{"name": "app"}} {
		result := s.run("/.taskfold/helper phase --name "+s.name+" < <(cat /work/request)", "user", user)
		if *result.ReturnCode == 0 {
			t.Fatal(string(result.Output.Inline))
		}
	}
}

func TestOutputHeldInTheBackground(t *testing.T) {
	s := newSandbox(t)
	result := s.run(`(trap '' HUP; while sleep 0.02; do echo tick || exit; date +%s%N > /work/tick; done) & echo started; exit 0`,
		"output", map[string]any{"path": "/work/out", "headBytes": 1000, "tailBytes": 1000})
	if *result.ReturnCode != 0 {
		t.Fatalf("%+v", result)
	}
	out, tick := s.file("/work/out"), s.file("/work/tick")
	// It logs on, long after a pipe would be full or closed, into nothing.
	s.until("the service still runs", func() bool { now := s.file("/work/tick"); return now != tick && !strings.Contains(now, "no such") })
	tick = s.file("/work/tick")
	s.until("and goes on", func() bool { return s.file("/work/tick") != tick })
	if s.file("/work/out") != out || !strings.Contains(out, "started\n") {
		t.Fatal("the file changed after the end")
	}
}

func TestGroupIsKilledAtTheLimitButNotItsDaemons(t *testing.T) {
	s := newSandbox(t)
	result := s.run(`setsid bash -c 'while sleep 0.02; do date +%s%N > /work/daemon; done' & sleep 600 & echo $! > /work/child
		trap '' TERM; echo before; sleep 600`, "limitSeconds", 2)
	if !result.TimedOut || result.ReturnCode != nil || *result.Signal != 9 || result.Seconds < 2 || result.Seconds > 60 {
		t.Fatalf("%+v", result)
	}
	if string(result.Output.Inline) != "before\n" {
		t.Fatalf("%q", result.Output.Inline)
	}
	s.until("the group is dead", func() bool {
		_, err := os.Stat(s.root + "/proc/" + strings.TrimSpace(s.file("/work/child")))
		return err != nil
	})
	tick := s.file("/work/daemon")
	s.until("the daemon lives", func() bool { return s.file("/work/daemon") != tick })
}

func TestMuchOutputIsBounded(t *testing.T) {
	s := newSandbox(t)
	size := 64 << 20
	result := s.run(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf END", size),
		"output", map[string]any{"path": "/work/out", "headBytes": 1 << 20, "tailBytes": 1 << 20, "inlineBytes": 3})
	out := s.file("/work/out")
	mark := fmt.Sprintf("x\n[taskfold: %d bytes left out]\nx", size+3-(2<<20))
	if result.Output.Bytes != int64(size)+3 || result.Output.Kept != 2<<20 || !strings.HasSuffix(out, "xEND") ||
		strings.Index(out, mark) != 1<<20-1 || len(out) != 2<<20+len(mark)-2 || string(result.Output.Inline) != "END" {
		t.Fatalf("%d %+v", len(out), result.Output)
	}
	status := s.hostStatus("VmHWM:")
	if status > 24<<10 {
		t.Fatalf("PID 1 grew to %d KiB", status)
	}
}

// hostStatus gives a number of KiB of PID 1.
func (s *sandbox) hostStatus(field string) (kib int) {
	body, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	_, rest, _ := bytes.Cut(body, []byte(field))
	fmt.Sscan(string(rest), &kib)
	return kib
}

func TestFullDiskIsReportedAndDoesNotStopTheRun(t *testing.T) {
	s := newSandbox(t)
	result := s.run("head -c 4000000 /dev/zero; echo end", "output",
		map[string]any{"path": "/vol/out", "headBytes": 3 << 20, "tailBytes": 1 << 20, "inlineBytes": 4})
	o := result.Output
	if *result.ReturnCode != 0 || o.Error == nil || !strings.Contains(*o.Error, "no space") || o.Bytes != 4000004 || string(o.Inline) != "end\n" || !o.Gap {
		t.Fatalf("%+v", result)
	}
}

func TestResetWithPlantedThings(t *testing.T) {
	s := newSandbox(t)
	s.run(`mkdir -p /precious/sub; echo x > /precious/file; rmdir /tests; ln -s /precious /tests; ln -s /precious /logs
		echo y > /vol/x; mkdir -p /vol/d/e; ln -s /precious /vol/l; mkdir -m 0 /vol/closed; mkfifo /vol/fifo`)
	request := simple(nonce())
	request["prepare"] = []any{
		map[string]any{"op": "reset", "path": "/tests", "keep": []string{}}, map[string]any{"op": "reset", "path": "/logs/verifier"},
		map[string]any{"op": "reset", "path": "/vol"}, map[string]any{"op": "directory", "path": "/logs/agent", "mode": "0777", "existing": "own"},
	}
	s.phase(request).expect("done")
	result := s.run("ls -A /tests /logs/verifier /vol; cat /precious/file; ls /precious; mountpoint -q /vol && echo mounted; [ -L /logs ] || echo real")
	if got := string(result.Output.Inline); got != "/logs/verifier:\n\n/tests:\n\n/vol:\nx\nfile\nsub\nmounted\nreal\n" {
		t.Fatal(got)
	}
	// A mount inside is not ours to empty.
	s.run("mkdir -p /tests/a/b /logs/verifier/m; mount -t tmpfs tmpfs /tests/a/b; touch /tests/a/b/file")
	request["nonce"] = nonce()
	if r := s.phase(request).next(); r.Reason != "Prepare" || !strings.Contains(r.Message, "mounted") {
		t.Fatal(r.raw)
	}
	if result := s.run("ls /tests/a/b"); string(result.Output.Inline) != "file\n" {
		t.Fatalf("%+v", result)
	}
}

func TestUsersAndStartErrors(t *testing.T) {
	s := newSandbox(t)
	who := "id -u; id -g; id -G; echo $HOME"
	for name, c := range map[string]struct {
		run  map[string]any
		want string
	}{
		"image":        {bash(who), "0\n0\n0\n\n"},
		"name":         {bash(who, "user", map[string]any{"name": "app"}), "1000\n1000\n1000 2000\n/home/app\n"},
		"number":       {bash(who, "user", map[string]any{"uid": 1000}), "1000\n1000\n1000 2000\n/home/app\n"},
		"numbers":      {bash(who, "user", map[string]any{"uid": 7, "gid": 8, "groups": []int{9}}), "7\n8\n8 9\n/\n"},
		"login":        {bash("echo $USER $LOGNAME", "user", map[string]any{"uid": 1000}), "app app\n"},
		"no login":     {bash("echo $USER $LOGNAME", "user", map[string]any{"uid": 7}), "\n"},
		"own home":     {bash("echo $HOME", "user", map[string]any{"name": "app"}, "env", map[string]string{"HOME": "/h"}), "/h\n"},
		"cwd":          {bash("pwd", "cwd", "/tmp"), "/tmp\n"},
		"descriptors":  {bash("ls /proc/self/fd | wc -l; readlink /proc/self/fd/0"), "4\n/dev/null\n"},
		"own session":  {bash("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leader"), "leader\n"},
		"signals":      {bash("grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2 | sort -u"), "0000000000000000\n"},
		"blocking out": {bash("grep flags /proc/self/fdinfo/1 | cut -f2"), "0100001\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.phase(simple(nonce(), c.run)).expect("done").Result.Runs[0]
			got := string(r.Output.Inline)
			if name == "blocking out" {
				got = strings.Replace(got, "01\n", "0100001\n", 1)
			}
			if r.StartError != nil || got != c.want {
				t.Fatalf("%q, want %q; %+v", r.Output.Inline, c.want, r)
			}
		})
	}
	for name, c := range map[string]struct {
		run  map[string]any
		want string
	}{
		"no bash":       {map[string]any{"name": "x", "argv": []string{"nobash"}}, "nobash: not found in PATH"},
		"no path":       {bash("true", "env", map[string]string{"PATH": "/none"}), "bash: not found in PATH"},
		"not a program": {map[string]any{"name": "x", "argv": []string{"/etc/passwd"}}, "permission denied"},
		"a folder":      {map[string]any{"name": "x", "argv": []string{"/etc"}}, "permission denied"},
		"unknown user":  {bash("true", "user", map[string]any{"name": "1000"}), "unknown user"},
		"closed cwd":    {bash("true", "cwd", "/root", "user", map[string]any{"name": "app"}), "/root as 1000:1000: permission denied"},
		"missing cwd":   {bash("true", "cwd", "/none"), "working directory /none"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.phase(simple(nonce(), c.run)).expect("done").Result.Runs[0]
			if r.StartError == nil || !strings.Contains(*r.StartError, c.want) || r.ReturnCode != nil || r.Signal != nil {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// TestWithoutRoot is the security profile `restricted`: no privilege at all, not even over its own closed folders.
func TestWithoutRoot(t *testing.T) {
	s := newSandboxOf(t, "1000")
	s.run("mkdir -p /work/tests/a; touch /work/tests/a/f; chmod 0 /work/tests/a; mkfifo /work/tests/p")
	request := simple(nonce(), bash("id -u; stat -c %a:%u:%g /work/tests/test.sh /work/tests/own", "user", map[string]any{"name": "app"}),
		bash("true", "user", map[string]any{"name": "root"}))
	request["runs"].([]map[string]any)[0]["continueOnFailure"] = true
	request["prepare"] = []any{
		map[string]any{"op": "reset", "path": "/work/tests"},
		map[string]any{"op": "unpack", "path": "/work/tests", "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "normalise"},
		map[string]any{"op": "unpack", "path": "/work/tests", "maxBytes": 1 << 20, "maxEntries": 10, "fileMode": "keep"},
	}
	c := s.phase(request)
	c.expect("send")
	c.stdin.Write(frameArchive(tarOf(t, reg("test.sh", "", 0o600)), 100, 1))
	c.stdin.Write(frameArchive(tarOf(t, entry{tar.Header{Typeflag: tar.TypeReg, Name: "own", Mode: 0o640, Uid: 5, Gid: 6}, ""}), 100, 1))
	runs := c.expect("done").Result.Runs
	if got := string(runs[0].Output.Inline); got != "1000\n755:1000:1000\n640:1000:1000\n" {
		t.Fatalf("%q", got)
	}
	if runs[1].StartError == nil || !strings.Contains(*runs[1].StartError, "operation not permitted") {
		t.Fatalf("%+v", runs[1])
	}
	if r := s.phase(simple(nonce(), bash("kill -9 1; kill -TERM 1; sleep 0.1; kill -0 1 && echo alive"))).expect("done").Result; string(r.Runs[0].Output.Inline) != "alive\n" {
		t.Fatalf("%+v", r)
	}
}

func TestRequiredThings(t *testing.T) {
	s := newSandbox(t)
	for reason, op := range map[string]map[string]any{
		"MissingTools": {"op": "tools", "names": []string{"bash", "nonesuch"}, "required": true},
		"UnknownUser":  {"op": "user", "name": "nobody-here", "required": true},
		"Prepare":      {"op": "write", "path": "/proc/x/y", "mode": "0644", "base64": ""},
	} {
		request := simple(nonce(), bash("true"))
		request["prepare"] = []any{op}
		if r := s.phase(request).next(); r.Event != "failed" || r.Reason != reason {
			t.Errorf("%s: %s", reason, r.raw)
		}
		request["prepare"] = nil
		s.phase(request).expect("done") // the claim was released
	}
	bad := simple("x")
	if r := s.phase(bad).next(); r.Reason != "Protocol" {
		t.Fatal(r.raw)
	}
}

func TestOrphansAreReapedAndPhasesAreCounted(t *testing.T) {
	s := newSandbox(t)
	s.run("for i in $(seq 200); do (setsid true &) ; done; sleep 0.2")
	s.until("no zombie is left", func() bool {
		out, _ := s.exec("sh", "-c", "cat /proc/[0-9]*/stat").Output()
		return !bytes.Contains(out, []byte(") Z "))
	})
	first := nonce()
	s.phase(simple(first)).expect("done")
	for range maxPhases {
		s.phase(simple(nonce())).expect("done")
	}
	if r := s.phase(simple(first)).next(); r.Reason != claimForgotten {
		t.Fatal(r.raw)
	}
}

func TestInitRefusesToBeAnythingButPid1(t *testing.T) {
	newSandbox(t).t.Log("built")
	program, err := buildOnce()
	must(t, err)
	var stderr bytes.Buffer
	cmd := commandOf(program, "init")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "not PID 1") {
		t.Fatal(err, stderr.String())
	}
}

func TestRecordCopyAndVersion(t *testing.T) {
	program, err := buildOnce()
	must(t, err)
	dir := t.TempDir()
	must(t, commandOf(program, "copy", dir).Run())
	names, _ := os.ReadDir(dir)
	if len(names) != 1 {
		t.Fatal(names)
	}
	cmd := commandOf(dir+"/helper", "record")
	cmd.Dir = dir
	out, err := cmd.Output()
	must(t, err)
	var r record
	must(t, json.Unmarshal(out, &r))
	if r.UID != os.Getuid() || r.Cwd != dir || r.Protocol != 1 || r.Groups == nil {
		t.Fatalf("%+v", r)
	}
	if out, err := commandOf(dir+"/helper", "version").Output(); err != nil || !bytes.Contains(out, []byte("protocol 1")) {
		t.Fatal(string(out), err)
	}
}

func TestWorkingDirectoryOfTheImage(t *testing.T) {
	s := newSandbox(t)
	s.run("mkdir /run /var; ln -s /run /var/run; echo x > /file")
	request := simple(nonce(), bash("pwd -P; stat -c %a:%U /run/app; readlink /var/run", "cwd", "/var/run/app"))
	directory := map[string]any{"op": "directory", "path": "/var/run/app", "mode": "0750", "user": map[string]any{"name": "app"}, "existing": "keep", "links": "follow"}
	request["prepare"] = []any{directory}
	if got := string(s.phase(request).expect("done").Result.Runs[0].Output.Inline); got != "/run/app\n750:app\n/run\n" {
		t.Fatal(got)
	}
	request["nonce"], directory["path"] = nonce(), "/file/app"
	if r := s.phase(request).next(); r.Reason != "Prepare" || !strings.Contains(r.Message, `"/file"`) || s.file("/file") != "x\n" {
		t.Fatal(r.raw)
	}
	directory["links"] = "either"
	if r := s.phase(request).next(); r.Reason != "Protocol" {
		t.Fatal(r.raw)
	}
}

func TestKillsOfTheMemoryLimitAreCounted(t *testing.T) {
	s := newSandbox(t) // its cgroup file says 2
	if got := s.run("true").OOMKills; got != 0 {
		t.Fatal(got)
	}
	if got := s.run("printf 'oom 5\\noom_kill 5\\n' > /sys/fs/cgroup/memory.events").OOMKills; got != 3 {
		t.Fatal(got)
	}
	if got := s.run("cd /sys/fs/cgroup; mv memory.events old; echo oom_kill 99 > memory.events").OOMKills; got != 0 {
		t.Fatal(got)
	}
}
