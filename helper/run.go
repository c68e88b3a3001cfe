package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// defaultPath is for environments without PATH, as docker fills it in.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// supervisor runs programs in the container, as PID 1 found it at its start.
type supervisor struct {
	processes *processes
	null      int // /dev/null, opened before anybody could replace it
	cwd       string
	env       []string
	oom       *oomCounter
	live      recorders
}

// run runs one program to its end or its limit (0: none) and reports; lead, if not nil, gets its leader. It blocks
// only for the program itself: not for what the program leaves running, nor for those who hold its output.
func (s *supervisor) run(spec *runSpec, limit time.Duration, lead func(*child)) runResult {
	result := runResult{Name: spec.Name}
	recorder := newRecorder(spec.Output)
	if spec.Background != nil {
		s.live.add(recorder)
		defer s.live.remove(recorder)
	}
	pump, writer, err := newPump(recorder)
	if err != nil {
		result.notStarted(err)
		result.Output = recorder.finish()
		return result
	}
	started, killed := time.Now(), s.oom.kills()
	leader, err := s.start(spec, writer)
	syscall.Close(writer)
	if err != nil {
		result.notStarted(err)
		result.Output = pump.discard()
		return result
	}
	if lead != nil {
		lead(leader)
	}
	go pump.run()
	status, timedOut := s.wait(leader, limit)
	result.Seconds = time.Since(started).Seconds()
	result.TimedOut = timedOut
	result.ended(status)
	result.Output = pump.leaderEnded()
	result.OOMKills = max(0, s.oom.kills()-killed)
	return result
}

// wait waits for the leader, whose group is killed at the limit (0: none). At a normal end nothing is signalled.
func (s *supervisor) wait(leader *child, limit time.Duration) (status syscall.WaitStatus, timedOut bool) {
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case status = <-leader.exited:
		return status, false
	case <-expired:
		timedOut = s.processes.killGroup(leader)
		return <-leader.exited, timedOut
	}
}

func (r *runResult) notStarted(err error) {
	text := err.Error()
	r.StartError = &text
}

func (r *runResult) ended(status syscall.WaitStatus) {
	if status.Signaled() {
		number := int(status.Signal())
		r.Signal = &number
		return
	}
	code := status.ExitStatus()
	r.ReturnCode = &code
}

func (r *runResult) succeeded() bool {
	return r.ReturnCode != nil && *r.ReturnCode == 0 && !r.TimedOut
}

// start resolves user, environment and program in the container and starts it with output as stdout and stderr.
func (s *supervisor) start(spec *runSpec, output int) (*child, error) {
	attr := &syscall.ProcAttr{
		Dir:   s.cwd,
		Files: []uintptr{uintptr(s.null), uintptr(output), uintptr(output)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if spec.Cwd != nil {
		attr.Dir = *spec.Cwd
	}
	login, as := map[string]string(nil), ""
	if spec.User != nil {
		user, err := lookupUser(spec.User)
		if err != nil {
			return nil, err
		}
		attr.Sys.Credential = user.credential()
		login, as = user.login(), fmt.Sprintf(" as %d:%d", user.UID, user.GID)
	}
	base := s.env
	if spec.OwnEnv {
		base = nil
		delete(login, "USER")
		delete(login, "LOGNAME")
	}
	env := mergeEnv(base, spec.Env, login)
	attr.Env = env
	if spec.MakeCwd {
		if err := makeFolder(attr.Dir); err != nil {
			return nil, fmt.Errorf("working directory %s: %w", attr.Dir, err)
		}
	}
	if info, err := os.Stat(attr.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("working directory %s: not a directory that exists", attr.Dir)
	}
	program, err := findProgram(spec.Argv[0], lookupEnv(env, "PATH"), attr.Dir)
	if err != nil {
		return nil, err
	}
	leader, err := s.processes.start(program, spec.Argv, attr)
	if err != nil {
		return nil, fmt.Errorf("%s in %s%s: %w", program, attr.Dir, as, err)
	}
	return leader, nil
}

// makeFolder makes what is missing of a path, along the links of the image; what is made is 0755 and ours.
func makeFolder(path string) error {
	fd, _, err := followPath(path)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

// mergeEnv lays login over base, and extra over both.
func mergeEnv(base []string, extra, login map[string]string) []string {
	merged := make([]string, 0, len(base)+len(extra)+len(login))
	for _, entry := range base {
		key, _, _ := strings.Cut(entry, "=")
		_, replaced := extra[key]
		if _, own := login[key]; !replaced && !own {
			merged = append(merged, entry)
		}
	}
	for key, value := range extra {
		merged = append(merged, key+"="+value)
	}
	for key, value := range login {
		if _, replaced := extra[key]; !replaced && !strings.ContainsRune(value, 0) {
			merged = append(merged, key+"="+value)
		}
	}
	slices.Sort(merged)
	return merged
}

func lookupEnv(env []string, key string) string {
	for _, entry := range env {
		if value, found := strings.CutPrefix(entry, key+"="); found {
			return value
		}
	}
	return ""
}

// findProgram finds an executable as execvp would; relative folders of PATH count from cwd.
func findProgram(name, path, cwd string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if path == "" {
		path = defaultPath
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		program := filepath.Join(dir, name)
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return program, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}
