package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// command is one executed `helper exec`.
type command struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	output io.Reader
	errors bytes.Buffer
}

func (s *sandbox) command(request map[string]any) *command {
	s.t.Helper()
	c := &command{t: s.t, cmd: s.exec("/.taskfold/helper", "exec")}
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	must(s.t, err)
	c.output, err = c.cmd.StdoutPipe()
	must(s.t, err)
	c.cmd.Stderr = &c.errors
	must(s.t, c.cmd.Start())
	s.t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	must(s.t, writeJSON(c.stdin, merged(map[string]any{"protocol": 1, "maxBytes": 1 << 20}, request)))
	return c
}

func merged(base, extra map[string]any) map[string]any {
	for key, value := range extra {
		base[key] = value
	}
	return base
}

// end gives no more input and reads to the end.
func (c *command) end() (outputs map[byte]string, end execEnd) {
	c.t.Helper()
	must(c.t, writeFrame(c.stdin, nil))
	outputs = map[byte]string{}
	for {
		frame, err := readFrame(c.output, maxChunk)
		if err != nil {
			c.t.Fatalf("no end: %v; %s", err, c.errors.String())
		}
		if frame[0] == channelEnd {
			must(c.t, json.Unmarshal(frame[1:], &end))
			c.stdin.Close()
			must(c.t, c.cmd.Wait())
			return outputs, end
		}
		outputs[frame[0]] += string(frame[1:])
	}
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestExecTellsOutputsAndCode(t *testing.T) {
	s := newSandbox(t)
	for _, test := range []struct {
		name           string
		request        map[string]any
		stdout, stderr string
		code           int
	}{
		{"both outputs", map[string]any{"argv": sh("echo out; echo err >&2; exit 3")}, "out\n", "err\n", 3},
		{"as root", map[string]any{"argv": sh("id -u; pwd")}, "0\n/work\n", "", 0},
		{"as a user", map[string]any{
			"argv": sh("id -u; id -g; id -G; echo $HOME"), "user": map[string]any{"name": "app"},
		}, "1000\n1000\n1000 2000\n/home/app\n", "", 0},
		{"elsewhere", map[string]any{"argv": sh("pwd; echo $EXTRA"), "cwd": "/tmp", "env": map[string]string{"EXTRA": "x"}}, "/tmp\nx\n", "", 0},
		{"a session of its own", map[string]any{"argv": sh(`read -r pid _ _ _ group session _ </proc/self/stat; test "$group" = "$session" && echo own`)}, "own\n", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			outputs, end := s.command(test.request).end()
			if end.ReturnCode == nil || *end.ReturnCode != test.code {
				t.Errorf("ended as %+v, %q", end, outputs)
			}
			if outputs[channelStdout] != test.stdout || outputs[channelStderr] != test.stderr {
				t.Errorf("printed %q", outputs)
			}
		})
	}
}

func TestExecGivesInput(t *testing.T) {
	s := newSandbox(t)
	c := s.command(map[string]any{"argv": sh("wc -c"), "maxBytes": 100})
	go func() { // a pipe holds less than this
		for _, block := range [][]byte{bytes.Repeat([]byte("x"), maxChunk), bytes.Repeat([]byte("x"), 5), nil} {
			writeFrame(c.stdin, block)
		}
	}()
	frame, err := readFrame(c.output, maxChunk)
	if err != nil || strings.TrimSpace(string(frame[1:])) != "1048581" {
		t.Errorf("%q %v", frame, err)
	}
	c.stdin.Close()
}

func TestExecPassesOnNoMoreThanWasAskedFor(t *testing.T) {
	outputs, end := newSandbox(t).command(map[string]any{
		"argv": sh("head -c 300000 /dev/zero | tr '\\0' x; echo err >&2"), "maxBytes": 10,
	}).end()
	if outputs[channelStdout] != "xxxxxxxxxx" || outputs[channelStderr] != "err\n" || end.Stdout != 300000 || end.Stderr != 4 {
		t.Errorf("%q %+v", outputs, end)
	}
}

func TestExecSaysWhyNothingStarted(t *testing.T) {
	s := newSandbox(t)
	for name, request := range map[string]map[string]any{
		"not found in PATH":   {"argv": []string{"no-such-program"}},
		"unknown user":        {"argv": sh("true"), "user": map[string]any{"name": "nobody-here"}},
		"not a directory":     {"argv": sh("true"), "cwd": "/nowhere"},
		"permission denied":   {"argv": []string{"/etc/passwd"}},
		"no such file":        {"argv": []string{"/nowhere"}},
		"not a user or group": {"argv": sh("true"), "user": map[string]any{"uid": -1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.command(request)
			if name == "not a user or group" { // a request that is refused as a whole
				c.stdin.Close()
				c.cmd.Wait()
				if !strings.Contains(c.errors.String(), name) {
					t.Error(c.errors.String())
				}
				return
			}
			_, end := c.end()
			if end.StartError == nil || !strings.Contains(*end.StartError, name) || end.ReturnCode != nil {
				t.Errorf("%+v", end)
			}
		})
	}
}

func TestExecTellsSignals(t *testing.T) {
	_, end := newSandbox(t).command(map[string]any{"argv": sh("kill -9 $$")}).end()
	if end.Signal == nil || *end.Signal != 9 || end.ReturnCode != nil {
		t.Errorf("%+v", end)
	}
}

func TestExecEndsWithWhoeverAsked(t *testing.T) {
	s := newSandbox(t)
	for name, script := range map[string]string{
		"quiet":                 "echo $$ >/tmp/quiet; sleep 1000 & wait",
		"takes no input":        "echo $$ >/tmp/takes; sleep 1000",
		"prints without an end": "echo $$ >/tmp/prints; while :; do echo y; done",
		"does not want to stop": "echo $$ >/tmp/does; trap '' TERM INT HUP; while :; do sleep 1000; done",
	} {
		t.Run(name, func(t *testing.T) {
			file, _, _ := strings.Cut(name, " ")
			c := s.command(map[string]any{"argv": sh(script)})
			s.until(name+" starts", func() bool { return strings.HasSuffix(s.file("/tmp/"+file), "\n") })
			if name == "takes no input" {
				go func() {
					for writeFrame(c.stdin, make([]byte, 1<<20)) == nil {
					}
				}()
			}
			pid := strings.TrimSpace(s.file("/tmp/" + file))
			c.cmd.Stdout = nil
			c.stdin.Close()
			s.until(name+" ends", func() bool {
				body, err := os.ReadFile(s.root + "/proc/" + pid + "/stat")
				return err != nil || strings.Contains(string(body), ") Z ")
			})
		})
	}
}

func TestExecLeavesAloneWhatGoesOn(t *testing.T) {
	s := newSandbox(t)
	outputs, end := s.command(map[string]any{"argv": sh("sleep 1000 & echo $!")}).end()
	pid := strings.TrimSpace(outputs[channelStdout])
	if end.ReturnCode == nil || *end.ReturnCode != 0 {
		t.Fatalf("%+v", end)
	}
	if !strings.Contains(s.file("/proc/"+pid+"/cmdline"), "1000") {
		t.Errorf("%s does not go on", pid)
	}
}

func TestShellBecomesTheUser(t *testing.T) {
	s := newSandbox(t)
	for text, want := range map[string]string{
		"app":      "1000 1000 /home/app /tmp\n",
		"1000":     "1000 1000 /home/app /tmp\n",
		"0:2000":   "0 2000 /root /tmp\n",
		"4242:app": "4242 1000 / /tmp\n",
	} {
		output, err := s.exec("/.taskfold/helper", "shell", "--user", text, "--cwd", "/tmp", "sh", "-c", `echo $(id -u) $(id -g) $HOME $(pwd)`).CombinedOutput()
		if err != nil || string(output) != want {
			t.Errorf("%s: %q %v", text, output, err)
		}
	}
	if output, err := s.exec("/.taskfold/helper", "shell", "--user", "nobody-here", "sh").CombinedOutput(); err == nil || !strings.Contains(string(output), "unknown user") {
		t.Errorf("%q %v", output, err)
	}
}
