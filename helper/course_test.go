package main

import (
	"os"
	"strings"
	"testing"
)

// check makes a run a check that counts its attempts in /work/attempts.
func check(script string, retries int, more ...any) map[string]any {
	spec := map[string]any{"intervalSeconds": 0.01, "startIntervalSeconds": 0.01, "startPeriodSeconds": 0, "retries": retries}
	for i := 0; i < len(more); i += 2 {
		spec[more[i].(string)] = more[i+1]
	}
	return bash("echo x >> /work/attempts; "+script, "check", spec, "limitSeconds", 60)
}

func background(script string, settle float64, more ...any) map[string]any {
	return bash(script, append(more, "background", map[string]any{"settleSeconds": settle}, "name", "beside")...)
}

func TestACheckCountsWhatTheContractCounts(t *testing.T) {
	third := "[ $(wc -l < /work/attempts) -ge 3 ]"
	for name, c := range map[string]struct {
		run       map[string]any
		attempts  int
		succeeded bool
	}{
		"succeeds at once":                {check("true", 3), 1, true},
		"succeeds at last":                {check(third, 3), 3, true},
		"fails when retries failed":       {check("false", 3), 3, false},
		"fails before the third":          {check(third, 2), 2, false},
		"retries 1":                       {check("false", 1), 1, false},
		"retries 0 is one attempt":        {check("false", 0), 1, false},
		"the start period counts none":    {check(third, 0, "startPeriodSeconds", 600), 3, true},
		"counted by when it began":        {check("sleep 0.6; false", 1, "startPeriodSeconds", 0.5), 2, false},
		"a start that fails is a failure": {check("true", 2), 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			if name == "a start that fails is a failure" {
				c.run["argv"] = []string{"nobash"}
			}
			r := s.phase(simple(nonce(), c.run)).expect("done").Result.Runs[0]
			if r.Attempts != c.attempts || r.succeeded() != c.succeeded || (r.StartError != nil) != (c.run["argv"].([]string)[0] == "nobash") {
				t.Fatalf("%+v", r)
			}
			if counted := strings.Count(s.file("/work/attempts"), "x"); counted != c.attempts && r.StartError == nil {
				t.Fatalf("%d attempts told, %d made", c.attempts, counted)
			}
		})
	}
}

func TestAnAttemptIsKilledAtItsLimitAndCounts(t *testing.T) {
	s := newSandbox(t)
	run := check("sleep 600 & echo $! > /work/child; wait", 2)
	run["limitSeconds"] = 0.5
	r := s.phase(simple(nonce(), run)).expect("done").Result.Runs[0]
	if r.Attempts != 2 || !r.TimedOut || r.Signal == nil || *r.Signal != 9 {
		t.Fatalf("%+v", r)
	}
	s.until("the group is dead", func() bool {
		_, err := os.Stat(s.root + "/proc/" + strings.TrimSpace(s.file("/work/child")))
		return err != nil
	})
}

func TestThePhaseHasALimitOfItsOwn(t *testing.T) {
	s := newSandbox(t)
	request := simple(nonce(), check("false", 5, "intervalSeconds", 600), bash("echo >> /work/after"))
	request["limitSeconds"] = 30
	request["runs"].([]map[string]any)[0]["continueOnFailure"] = true
	// There is no time for another attempt, but for the next run there is.
	runs := s.phase(request).expect("done").Result.Runs
	if len(runs) != 2 || runs[0].Attempts != 1 || !runs[0].TimedOut || *runs[0].ReturnCode != 1 || runs[1].TimedOut {
		t.Fatalf("%+v", runs)
	}
	request = simple(nonce(), bash("sleep 600", "continueOnFailure", true), bash("echo x >> /work/later"))
	request["limitSeconds"] = 0.5
	request["runs"] = append(request["runs"].([]map[string]any), bash("true"))
	runs = s.phase(request).expect("done").Result.Runs
	if len(runs) != 2 || !runs[0].TimedOut || runs[1].Attempts != 0 || !strings.Contains(s.file("/work/later"), "no such") ||
		!strings.Contains(*runs[1].StartError, "the limit of its phase has passed") {
		t.Fatalf("%+v", runs)
	}
}

func TestABackgroundRunGoesOnBesideThePhases(t *testing.T) {
	s := newSandbox(t)
	first := simple(nonce(), background("echo $$ > /work/pid; echo up; while sleep 0.02; do date +%s%N > /work/tick; done", 0),
		check("[ -s /work/tick ]", 3, "startPeriodSeconds", 600))
	began := s.phase(first).expect("done")
	if len(began.Result.Runs) != 1 || !began.Result.Runs[0].succeeded() || began.Result.Background == nil || len(began.Result.Background) != 0 {
		t.Fatal(began.raw)
	}
	tick := s.file("/work/tick")
	s.until("it goes on", func() bool { return s.file("/work/tick") != tick })
	// A phase that saw it gone tells of its end, however soon it ends itself.
	second := s.phase(simple(nonce(), bash("kill -9 $(cat /work/pid); while kill -0 $(cat /work/pid) 2>/dev/null; do :; done"))).expect("done")
	r := second.Result.Background
	if len(r) != 1 || r[0].Nonce != first["nonce"] || r[0].Run.Name != "beside" || *r[0].Run.Signal != 9 || r[0].Run.Attempts != 1 ||
		string(r[0].Run.Output.Inline) != "up\n" {
		t.Fatal(second.raw)
	}
	if again := s.phase(first).expect("done"); again.raw != began.raw {
		t.Fatalf("a result changed: %s", again.raw)
	}
	if len(second.Result.Runs) != 1 {
		t.Fatal(second.raw)
	}
}

func TestWhatABackgroundRunsEndMeansForItsPhase(t *testing.T) {
	for name, c := range map[string]struct {
		beside map[string]any
		next   map[string]any
		runs   int
		code   int
	}{
		"failed while it settled":    {background("exit 3", 600), bash("true"), 0, 3},
		"could not start":            {background("exit 3", 600, "argv", []string{"nobash"}), bash("true"), 0, -1},
		"ended well":                 {background("exit 0", 600), bash("true"), 1, 0},
		"failed and is let":          {background("exit 3", 600, "continueOnFailure", true), bash("true"), 1, 3},
		"failed under a check":       {background("while [ ! -e /work/attempts ]; do sleep 0.02; done; exit 3", 0), check("false", 9, "intervalSeconds", 6000), 1, 3},
		"failed in the start period": {background("while [ ! -e /work/attempts ]; do sleep 0.02; done; exit 3", 0), check("false", 9, "startPeriodSeconds", 6000, "startIntervalSeconds", 6000), 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			r := s.phase(simple(nonce(), c.beside, c.next)).expect("done").Result
			if len(r.Runs) != c.runs || len(r.Background) != 1 {
				t.Fatalf("%+v", r)
			}
			ended := r.Background[0].Run
			if (c.code < 0) != (ended.StartError != nil) || c.code >= 0 && *ended.ReturnCode != c.code {
				t.Fatalf("%+v", ended)
			}
			if c.next["check"] != nil && (r.Runs[0].Attempts != 1 || r.Runs[0].TimedOut) {
				t.Fatalf("%+v", r.Runs[0])
			}
		})
	}
}

func TestTheOutputOfABackgroundRunIsInOrderAtTheEndOfAPhase(t *testing.T) {
	s := newSandbox(t)
	output := map[string]any{"path": "/work/out", "headBytes": 10, "tailBytes": 100}
	s.phase(simple(nonce(), background("printf BEGIN; head -c 997 /dev/zero | tr '\\0' x; printf LATEST; touch /work/said; sleep 600", 0, "output", output))).expect("done")
	s.until("it has said all", func() bool { _, err := os.Stat(s.root + "/work/said"); return err == nil })
	s.until("the file is in order", func() bool {
		s.run("true")
		out := s.file("/work/out")
		return len(out) == 110 && strings.HasPrefix(out, "BEGINxxxxx\n[taskfold: ") && strings.HasSuffix(out, "xLATEST")
	})
}

func TestAFolderIsMadeForARun(t *testing.T) {
	s := newSandbox(t)
	s.run("ln -s /work /link")
	result := s.run("pwd -P; stat -c %a:%u /work/a", "cwd", "/link/a/b", "makeCwd", true, "user", map[string]any{"name": "app"})
	if got := string(result.Output.Inline); got != "/work/a/b\n755:0\n" {
		t.Fatalf("%q %+v", got, result)
	}
}

func TestVariablesOfARunsOwn(t *testing.T) {
	s := newSandbox(t)
	result := s.run("env | sort | grep -Ev '^(_|SHLVL|PWD)='", "env", map[string]string{"PATH": "/usr/bin:/bin"}, "ownEnv", true, "user", map[string]any{"name": "app"})
	if got := string(result.Output.Inline); got != "HOME=/home/app\nPATH=/usr/bin:/bin\n" {
		t.Fatalf("%q", got)
	}
}

func TestAWrongCheckIsRefused(t *testing.T) {
	s := newSandbox(t)
	for _, run := range []map[string]any{
		check("true", -1), check("true", 1, "intervalSeconds", -1), check("true", 1, "pause", 1), background("true", -1),
		bash("true", "background", map[string]any{"settleSeconds": 1}, "check", map[string]any{"retries": 1}),
	} {
		if r := s.phase(simple(nonce(), run)).next(); r.Reason != "Protocol" {
			t.Error(r.raw)
		}
	}
	request := simple(nonce(), bash("true"))
	request["limitSeconds"] = 0
	if r := s.phase(request).next(); r.Reason != "Protocol" {
		t.Error(r.raw)
	}
}
