package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests of this file and of integration_test.go run the built program as PID 1 of a pid namespace of its own, with
// a root of its own (a tmpfs with the machine's /usr), as a container runtime does, and execute phases into it.

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "helper")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/helper", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return dir + "/helper", nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := buildOnce(); err == nil {
		os.RemoveAll(strings.TrimSuffix(program, "/helper"))
	}
	os.Exit(code)
}

const setup = `set -eu
R=$1; mount -t tmpfs tmpfs "$R"; cd "$R"
mkdir proc dev etc root tmp work tests vol usr .taskfold; chmod 1777 tmp; chmod 700 root; chown "$4" work
cp "$2" .taskfold/helper; chmod 755 .taskfold; chown 0:65532 .taskfold/helper; chmod 2551 .taskfold/helper
mount --rbind /usr usr; mount --make-rslave usr
for d in bin lib lib64 sbin; do if [ -L /$d ]; then cp -a /$d .; elif [ -d /$d ]; then mkdir $d; mount --rbind /$d $d; fi; done
mount -t proc proc proc; mount -t tmpfs tmpfs dev; mount -t tmpfs -o size=1m tmpfs vol
mknod dev/null c 1 3; mknod dev/zero c 1 5; chmod 666 dev/*
printf 'root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n' > etc/passwd
printf 'root:x:0:\napp:x:1000:\nextra:x:2000:app\n' > etc/group
mkdir -p sys/fs/cgroup; printf 'oom 2\noom_kill 2\n' > sys/fs/cgroup/memory.events
exec chroot --userspec="$4" "$R" /usr/bin/env -i -C /work PATH=/usr/bin:/bin FROM=image /.taskfold/helper init --name "$3" `

// patience is for what comes by itself: a bound for a broken helper, never reached by a slow machine.
const patience = time.Minute

// sandbox is a running container.
type sandbox struct {
	t    *testing.T
	root string // its root as this process sees it
	pid  int    // of its PID 1, likewise
	name string
	user string // of PID 1, "0" or "1000"
	init *exec.Cmd
}

func newSandbox(t *testing.T) *sandbox { return newSandboxOf(t, "0") }

func newSandboxOf(t *testing.T, user string) *sandbox {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace: run `sudo go test ./...`")
	}
	program, err := buildOnce()
	must(t, err)
	s := &sandbox{t: t, user: user, name: fmt.Sprintf("test-%d-%d", os.Getpid(), rand.Uint32())}
	s.init = exec.Command("unshare", "--pid", "--fork", "--mount", "sh", "-c", setup, "sh", t.TempDir(), program, s.name, user+":"+user)
	var stderr bytes.Buffer
	s.init.Stderr = &stderr
	must(t, s.init.Start())
	s.init.WaitDelay = time.Second
	t.Cleanup(func() {
		if child := childOf(s.init.Process.Pid); child != 0 {
			syscall.Kill(child, syscall.SIGKILL) // its end is the end of all in the namespace
		}
		s.init.Process.Kill()
		s.init.Wait()
	})
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if s.pid = childOf(s.init.Process.Pid); s.pid != 0 && socketIsThere(s.name) {
			s.root = fmt.Sprintf("/proc/%d/root", s.pid)
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.init.Process.Kill()
	s.init.Wait()
	if strings.Contains(stderr.String(), "Operation not permitted") {
		t.Skip("needs the right to make namespaces and to mount: " + stderr.String())
	}
	t.Fatal("init does not listen: " + stderr.String())
	return nil
}

func childOf(pid int) int {
	body, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child, _ := strconv.Atoi(strings.TrimSpace(string(body)))
	return child
}

func socketIsThere(name string) bool {
	body, _ := os.ReadFile("/proc/net/unix")
	return bytes.Contains(body, []byte("@taskfold/"+name+"\n"))
}

// exec makes a command that runs in the sandbox with a parent outside, as a container runtime's exec.
func (s *sandbox) exec(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(s.pid), "-p", "-m", "-r", "-w", "-S", s.user, "-G", s.user}, argv...)...)
}

// file reads a file of the sandbox.
func (s *sandbox) file(path string) string {
	body, err := os.ReadFile(s.root + path)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// until waits for something that happens in the sandbox.
func (s *sandbox) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatal("never happened: " + what)
}

// connection is one executed `helper phase`.
type connection struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

type reply struct {
	Event    string
	Attached bool
	Reason   string
	Message  string
	Results  []map[string]any
	Result   result
	raw      string
}

func (s *sandbox) phase(request map[string]any) *connection {
	s.t.Helper()
	c := &connection{t: s.t, cmd: s.exec("/.taskfold/helper", "phase", "--name", s.name)}
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	must(s.t, err)
	stdout, err := c.cmd.StdoutPipe()
	must(s.t, err)
	c.lines = bufio.NewReader(stdout)
	must(s.t, c.cmd.Start())
	s.t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	body, err := json.Marshal(request)
	must(s.t, err)
	must(s.t, writeFrame(c.stdin, body))
	return c
}

// next reads an event; the zero reply at the end of the stream.
func (c *connection) next() reply {
	c.t.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err == io.EOF {
		return reply{}
	}
	must(c.t, err)
	r := reply{raw: string(line)}
	must(c.t, json.Unmarshal(line, &r))
	return r
}

// expect skips to the event and fails if the stream ends or another final event comes first.
func (c *connection) expect(event string) reply {
	c.t.Helper()
	for {
		r := c.next()
		if r.Event == event {
			return r
		}
		switch r.Event {
		case "", "failed", "done", "unknown":
			c.t.Fatalf("%s wanted, got %s", event, r.raw)
		}
	}
}

// inner gives the host's pid of the helper behind nsenter.
func (c *connection) inner() int { return childOf(c.cmd.Process.Pid) }

func (c *connection) kill(signal syscall.Signal) {
	c.t.Helper()
	inner := c.inner()
	if inner == 0 { // a signal to 0 is one to the tests themselves
		c.t.Fatal("the helper has ended before it could be signalled")
	}
	must(c.t, syscall.Kill(inner, signal))
}

func nonce() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

func simple(nonce string, runs ...map[string]any) map[string]any {
	return map[string]any{"protocol": 1, "nonce": nonce, "phase": "test", "runs": runs}
}

func bash(script string, more ...any) map[string]any {
	run := map[string]any{"name": "run", "argv": []string{"bash", "-c", script}, "output": map[string]any{"inlineBytes": 65536}}
	for i := 0; i < len(more); i += 2 {
		run[more[i].(string)] = more[i+1]
	}
	return run
}

// runs one script to its end.
func (s *sandbox) run(script string, more ...any) runResult {
	s.t.Helper()
	return s.phase(simple(nonce(), bash(script, more...))).expect("done").Result.Runs[0]
}

func commandOf(argv ...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
