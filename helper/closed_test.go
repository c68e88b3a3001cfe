package main

import (
	"strings"
	"testing"
)

// spy starts the program again and again, at a number that it knows, and counts how often the memory of what it has
// become could be opened: of the memory of the Python that it was before, it could.
const spy = `
import os
opened = others = 0
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
        others += now != PROGRAM
print(opened, others > 0)
`

// Root without CAP_SYS_PTRACE, as the agent's is, is ready at the very moment that a helper starts.
func TestTheMemoryOfAHelperThatStartsCannotBeOpened(t *testing.T) {
	s := newSandbox(t)
	for program, want := range map[string]string{"/.taskfold/helper": "0 True", "/work/open": "True"} {
		if program == "/work/open" { // the same without the mode: what the test would see
			s.run("cp /.taskfold/helper /work/open; chmod 755 /work/open")
		}
		script := strings.ReplaceAll(spy, "PROGRAM", `"`+program+`"`)
		result := s.run(`setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace python3 -c "$SPY"`, "env", map[string]any{"SPY": script})
		got := strings.TrimSpace(string(result.Output.Inline))
		if want == "True" {
			if got == "0 True" || !strings.HasSuffix(got, want) {
				t.Errorf("%s: %q, so the test sees nothing", program, got)
			}
		} else if got != want {
			t.Errorf("%s: %q", program, got)
		}
	}
}
