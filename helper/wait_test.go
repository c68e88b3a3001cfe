package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The processes of these tests that are not executed into the sandbox are what other containers of its pod are to PID 1:
// they share its network namespace, and have no number in its pid namespace.

const untilGo = "while [ ! -e /work/go ]; do sleep 0.02; done; echo end"

func (s *sandbox) release() { must(s.t, os.WriteFile(s.root+"/work/go", nil, 0o600)) }

// waiter starts `helper wait` in another container.
func (s *sandbox) waiter(nonce string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	s.t.Helper()
	program, err := buildOnce()
	must(s.t, err)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = commandOf(program, "wait", "--name", s.name, "--nonce", nonce)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	must(s.t, cmd.Start())
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, stdout, stderr
}

// connections to a socket, as /proc/net/unix counts them: the listener and each accepted one have its name.
func (s *sandbox) connections() int {
	body, _ := os.ReadFile("/proc/net/unix")
	return bytes.Count(body, []byte("@taskfold/"+s.name+"\n")) - 1
}

// stranger connects as another container would.
func (s *sandbox) stranger(message any) *net.UnixConn {
	s.t.Helper()
	conn, err := net.DialUnix("unix", nil, socketName(s.name))
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	writeJSON(conn, message) // a refused connection may be closed already
	return conn
}

func TestAnotherContainerIsToldTheEnd(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash(untilGo))
	phase := s.phase(request)
	phase.expect("started")
	waiter, stdout, stderr := s.waiter(request["nonce"].(string))
	s.until("the waiter is served", func() bool { return s.connections() == 2 })
	s.release()
	phase.expect("done")
	if err := waiter.Wait(); err != nil || !strings.Contains(stdout.String(), "is done") {
		t.Fatal(err, stdout, stderr)
	}
	late, _, stderr := s.waiter(request["nonce"].(string)) // it is done already
	if err := late.Wait(); err != nil {
		t.Fatal(err, stderr)
	}
}

func TestAWaiterHearsTheEndAndNothingOfTheResult(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash("echo secret"))
	s.phase(request).expect("done")
	body, err := readFrame(s.stranger(awaitMessage{Await: request["nonce"].(string)}), maxEvent)
	must(t, err)
	if string(body) != `{"event":"done"}` {
		t.Fatal(string(body))
	}
}

func TestAWaiterEndsWithItsPodAndWithoutItsPhase(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash(untilGo))
	unknown, _, stderr := s.waiter(request["nonce"].(string))
	if err := unknown.Wait(); err == nil || !strings.Contains(stderr.String(), "unknown") {
		t.Fatal(err, stderr)
	}
	s.phase(request).expect("started")
	ended, _, _ := s.waiter(request["nonce"].(string))
	left, _, _ := s.waiter(request["nonce"].(string))
	s.until("both are served", func() bool { return s.connections() == 3 })
	must(t, ended.Process.Signal(syscall.SIGTERM))
	if err := ended.Wait(); err == nil || ended.ProcessState.ExitCode() != 1 {
		t.Fatal(err)
	}
	must(t, syscall.Kill(s.pid, syscall.SIGKILL))
	if err := left.Wait(); err == nil {
		t.Fatal("a waiter told an end that PID 1 did not")
	}
}

func TestAnotherContainerCanOnlyAwait(t *testing.T) {
	s := newSandbox(t)
	n := nonce()
	for _, message := range []any{
		claimMessage{Nonce: n, IdleSeconds: 30}, claimMessage{Nonce: n, AttachOnly: true, IdleSeconds: 30},
		awaitMessage{Await: "x"}, map[string]any{"await": n, "nonce": n}, "", 7,
	} {
		if body, err := io.ReadAll(s.stranger(message)); len(body) > 0 {
			t.Fatalf("%v was answered %q %v", message, body, err)
		}
	}
	request := simple(n)
	request["attachOnly"] = true
	if r := s.phase(request).next(); r.Event != "unknown" {
		t.Fatal(r.raw)
	}
}

func TestStrangersAreBoundedAndTakeNoPlaceOfPhases(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash(untilGo))
	phase := s.phase(request)
	phase.expect("started")
	var held []*net.UnixConn
	for range maxWaits {
		held = append(held, s.stranger(awaitMessage{Await: request["nonce"].(string)}))
	}
	s.until("all are served", func() bool { return s.connections() == 1+maxWaits })
	for range 3 * maxConnections {
		if body, _ := io.ReadAll(s.stranger(awaitMessage{Await: request["nonce"].(string)})); len(body) > 0 {
			t.Fatalf("one too many was answered %q", body)
		}
	}
	s.phase(simple(nonce(), bash("true"))).expect("done")
	held[0].Write([]byte("x")) // it has nothing more to say
	s.until("a place is free", func() bool { return s.connections() == maxWaits })
	waiter, _, stderr := s.waiter(request["nonce"].(string))
	s.until("it is given away", func() bool { return s.connections() == 1+maxWaits })
	s.release()
	if err := waiter.Wait(); err != nil {
		t.Fatal(err, stderr)
	}
	phase.expect("done")
}

// flood holds as many connections as it gets, makes more of them, and sends what a waiter or a claimant would.
const flood = `use Socket; $SIG{PIPE} = q(IGNORE); my ($name, $nonce) = @ARGV; my @held; my @said = (qq({"await":"$nonce"}), qq({"nonce":"$nonce","idleSeconds":30}));
for my $i (1..3000) { socket(my $s, PF_UNIX, SOCK_STREAM, 0) or last; connect($s, pack_sockaddr_un("\0taskfold/$name")) or next;
syswrite($s, pack("N/a*", $said[$i % 2])); push @held, $s if @held < 500; } print "flooded\n"; close STDOUT; sleep 600;`

func TestAnAgentCannotFoolOrFloodWaiting(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), bash(untilGo))
	phase := s.phase(request)
	phase.expect("started")
	waiter, _, stderr := s.waiter(request["nonce"].(string))
	s.until("the waiter is served", func() bool { return s.connections() == 2 })
	// Its children live on with it, in a session of their own; each of them floods.
	script := "for i in 1 2 3; do setsid perl -e '" + flood + "' " + s.name + " " + request["nonce"].(string) + " > /work/flood$i & done\n" +
		"/.taskfold/helper wait --name " + s.name + " --nonce " + request["nonce"].(string) + " && echo told; true"
	result := s.run(script)
	if result.StartError != nil || strings.Contains(string(result.Output.Inline), "told") {
		t.Fatalf("%+v %s", result, result.Output.Inline)
	}
	s.until("all have flooded", func() bool {
		return s.file("/work/flood1")+s.file("/work/flood2")+s.file("/work/flood3") == "flooded\nflooded\nflooded\n"
	})
	late, _, lateError := s.waiter(request["nonce"].(string))
	s.until("and a waiter is served", func() bool { return s.connections() >= 3 })
	s.release()
	if r := phase.expect("done"); string(r.Result.Runs[0].Output.Inline) != "end\n" {
		t.Fatal(r.raw)
	}
	if err := waiter.Wait(); err != nil {
		t.Fatal(err, stderr)
	}
	if err := late.Wait(); err != nil {
		t.Fatal(err, lateError)
	}
}

func TestAClientThatEndsItsInputLetsGo(t *testing.T) {
	s := newSandbox(t)
	for _, keep := range []bool{false, true} {
		request := simple(nonce(), bash(untilGo))
		request["keep"] = keep
		c := s.phase(request)
		c.expect("started")
		must(t, c.stdin.Close())
		if r := c.next(); r.Event != "running" {
			t.Fatal(r.raw)
		}
		must(t, c.cmd.Wait())
		again := s.phase(request)
		again.expect("started")
		s.release()
		if r := again.expect("done"); string(r.Result.Runs[0].Output.Inline) != "end\n" {
			t.Fatal(r.raw)
		}
		must(t, os.Remove(s.root+"/work/go"))
	}
}
