package main

import (
	"strings"
	"testing"
	"time"
)

// spy starts the program again and again, at a number that it knows, and counts how often its memory could be opened.
const spy = `
import os
opened = 0
for _ in range(100):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execv(PROGRAM, [PROGRAM, "version"])
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            now = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        opened += program == now == PROGRAM
print(opened)
`

// Root without CAP_SYS_PTRACE, as the agent's is, is ready at the very moment that a helper starts.
func TestTheMemoryOfAHelperThatStartsCannotBeOpened(t *testing.T) {
	s := newSandbox(t)
	s.run("cp /.taskfold/helper /work/open; chmod 755 /work/open")
	opened := func(program string) string {
		script := strings.ReplaceAll(spy, "PROGRAM", `"`+program+`"`)
		const rootAsTheAgentHasIt = `setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace python3 -c "$SPY"`
		result := s.run(rootAsTheAgentHasIt, "env", map[string]any{"SPY": script})
		return strings.TrimSpace(string(result.Output.Inline))
	}
	if got := opened("/.taskfold/helper"); got != "0" {
		t.Errorf("%q", got)
	}
	if got := opened("/work/open"); got == "0" {
		t.Error("without the file's mode it cannot be opened either: this test sees nothing")
	}
}

// PID 1 without a descriptor could hear nobody: it ends, so that the sandbox is lost instead of silent.
func TestInitEndsWhenItsDescriptorsAreTakenAway(t *testing.T) {
	s := newSandbox(t)
	s.run("prlimit --pid 1 --nofile=3:3")
	s.phase(simple(nonce(), bash("true")))
	ended := make(chan error, 1)
	go func() { ended <- s.init.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended well")
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}
