package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Channels of the frames that `exec` prints: their first byte.
const (
	channelStdout = 1
	channelStderr = 2
	channelEnd    = 3
)

const (
	maxExecBytes = 64 << 20 // of one output that is passed on
	leaveTime    = 10 * time.Second
)

// execRequest is a command of somebody who drives the sandbox from outside. Chunks of its standard input follow; an
// empty one ends it. The end of the stream itself is the end of whoever asked, and of the command.
type execRequest struct {
	Protocol int               `json:"protocol"`
	Argv     []string          `json:"argv"`
	Env      map[string]string `json:"env"`
	Cwd      *string           `json:"cwd"`
	User     *userSpec         `json:"user"`
	MaxBytes int64             `json:"maxBytes"`
}

// execEnd tells how the command ended. The counts are of what it printed, passed on or not.
type execEnd struct {
	ReturnCode *int    `json:"returnCode"`
	Signal     *int    `json:"signal"`
	StartError *string `json:"startError"`
	Stdout     int64   `json:"stdoutBytes"`
	Stderr     int64   `json:"stderrBytes"`
	UID        int     `json:"uid"`
	GID        int     `json:"gid"`
}

func (r *execRequest) validate() error {
	switch {
	case r.Protocol != protocolVersion:
		return fmt.Errorf("protocol %d, this helper speaks %d", r.Protocol, protocolVersion)
	case len(r.Argv) == 0 || r.Argv[0] == "":
		return errors.New("argv: empty")
	case r.MaxBytes < 0 || r.MaxBytes > maxExecBytes:
		return fmt.Errorf("maxBytes: %d is not between 0 and %d", r.MaxBytes, maxExecBytes)
	case r.User != nil:
		return r.User.valid()
	}
	return nil
}

// runExec runs one command in a session of its own, with its input and its outputs as frames. When nobody is at the
// other end any more the command's process group is killed: a caller that went away leaves nothing at work. At its
// normal end nothing is signalled.
func runExec([]string) error {
	input := bufio.NewReader(os.Stdin)
	body, err := readFrame(input, maxRequest)
	if err != nil {
		return err
	}
	request := &execRequest{}
	if err := decodeStrict(body, request); err != nil {
		return err
	}
	if err := request.validate(); err != nil {
		return err
	}
	end, out := execEnd{}, &outlet{}
	if err := request.run(input, out, &end); err != nil {
		text := err.Error()
		end.StartError = &text
	}
	encoded, err := json.Marshal(end)
	if err != nil {
		return err
	}
	if err := out.send(channelEnd, encoded); err != nil {
		return err
	}
	leave(input)
	return nil
}

// leave waits for the end of the input: a process that ends while input is coming may lose its output on the way.
func leave(input io.Reader) {
	timer := time.AfterFunc(leaveTime, func() { os.Exit(0) })
	defer timer.Stop()
	io.Copy(io.Discard, input)
}

func (r *execRequest) run(input *bufio.Reader, out *outlet, end *execEnd) error {
	program, attr, err := r.resolve()
	if err != nil {
		return err
	}
	end.UID, end.GID = os.Getuid(), os.Getgid()
	if credential := attr.Sys.Credential; credential != nil {
		end.UID, end.GID = int(credential.Uid), int(credential.Gid)
	}
	pipes, err := newPipes()
	if err != nil {
		return err
	}
	attr.Files = pipes.child
	process, err := os.StartProcess(program, r.Argv, attr)
	pipes.closeChild()
	if err != nil {
		pipes.closeOwn()
		return fmt.Errorf("%s in %s: %w", program, attr.Dir, err)
	}
	var ended atomic.Bool
	go func() { // ends with this process
		if awaitHangup() && !ended.Load() {
			syscall.Kill(-process.Pid, syscall.SIGKILL)
			os.Exit(1)
		}
	}()
	go feed(input, pipes.stdin)
	var pumps sync.WaitGroup
	for _, each := range []struct {
		channel byte
		pipe    *os.File
		count   *int64
	}{{channelStdout, pipes.stdout, &end.Stdout}, {channelStderr, pipes.stderr, &end.Stderr}} {
		pumps.Add(1)
		go func() {
			defer pumps.Done()
			*each.count = out.pass(each.channel, each.pipe, r.MaxBytes)
		}()
	}
	state, err := process.Wait()
	ended.Store(true)
	late := time.Now().Add(lateTime) // what it left running may hold the pipes for ever
	pipes.stdout.SetReadDeadline(late)
	pipes.stderr.SetReadDeadline(late)
	pumps.Wait()
	if err != nil {
		return err
	}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		number := int(status.Signal())
		end.Signal = &number
	} else {
		code := status.ExitStatus()
		end.ReturnCode = &code
	}
	return nil
}

// resolve finds the user, the environment and the program in the container.
func (r *execRequest) resolve() (string, *os.ProcAttr, error) {
	dir, err := os.Getwd()
	if r.Cwd != nil {
		dir, err = *r.Cwd, nil
	}
	if err != nil {
		return "", nil, err
	}
	sys, login := &syscall.SysProcAttr{Setsid: true}, map[string]string(nil)
	if r.User != nil {
		user, err := lookupUser(r.User)
		if err != nil {
			return "", nil, err
		}
		sys.Credential, login = user.credential(), user.login()
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", nil, fmt.Errorf("working directory %s: not a directory that exists", dir)
	}
	env := mergeEnv(os.Environ(), r.Env, login)
	program, err := findProgram(r.Argv[0], lookupEnv(env, "PATH"), dir)
	return program, &os.ProcAttr{Dir: dir, Env: env, Sys: sys}, err
}

// execPipes are the three standard streams of a command.
type execPipes struct {
	stdin, stdout, stderr *os.File
	child                 []*os.File
}

func newPipes() (*execPipes, error) {
	p := &execPipes{}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.child = ours, []*os.File{theirs}
	for _, own := range []**os.File{&p.stdout, &p.stderr} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			p.closeChild()
			p.closeOwn()
			return nil, err
		}
		*own, p.child = ours, append(p.child, theirs)
	}
	return p, nil
}

func (p *execPipes) closeChild() {
	for _, file := range p.child {
		file.Close()
	}
}

func (p *execPipes) closeOwn() {
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if file != nil {
			file.Close()
		}
	}
}

// feed gives the command its input. A command that does not take it all loses nothing but that.
func feed(input *bufio.Reader, stdin *os.File) {
	defer stdin.Close()
	for {
		chunk, err := readFrame(input, maxChunk)
		if err != nil || len(chunk) == 0 {
			return
		}
		if _, err := stdin.Write(chunk); err != nil {
			stdin.Close()
			for err == nil || errors.Is(err, syscall.EPIPE) { // what is still coming stands in the way of the end
				if chunk, err = readFrame(input, maxChunk); len(chunk) == 0 {
					return
				}
			}
			return
		}
	}
}

// outlet writes frames to standard output, each whole.
type outlet struct {
	mutex sync.Mutex
}

func (o *outlet) send(channel byte, data []byte) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return writeFrame(os.Stdout, append([]byte{channel}, data...))
}

// pass passes on the first most bytes of an output and reads the rest; it returns how many there were.
func (o *outlet) pass(channel byte, pipe *os.File, most int64) int64 {
	defer pipe.Close()
	buffer, count := make([]byte, pumpBuffer), int64(0)
	for {
		n, err := pipe.Read(buffer)
		if room := most - count; n > 0 && room > 0 {
			if o.send(channel, buffer[:min(int64(n), room)]) != nil {
				return count
			}
		}
		count += int64(n)
		if err != nil {
			return count
		}
	}
}

// runShell becomes a user and then the program: for somebody at a terminal, which stays the one that we were given.
func runShell(args []string) error {
	flags := flag.NewFlagSet("shell", flag.ExitOnError)
	text := flags.String("user", "", "user or user:group, each a name or a number")
	cwd := flags.String("cwd", "", "working directory")
	flags.Parse(args)
	if flags.NArg() == 0 {
		return errors.New("a program is wanted")
	}
	user, err := parseUser(*text)
	if err != nil {
		return err
	}
	if *cwd != "" {
		if err := os.Chdir(*cwd); err != nil {
			return err
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	login := map[string]string(nil)
	if user != nil {
		id, err := lookupUser(user)
		if err != nil {
			return err
		}
		os.Stdin.Chown(id.UID, id.GID) // a terminal belongs to who works at it; what is none may refuse
		if err := id.become(); err != nil {
			return err
		}
		login = id.login()
	}
	env := mergeEnv(os.Environ(), nil, login)
	program, err := findProgram(flags.Arg(0), lookupEnv(env, "PATH"), dir)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, flags.Args(), env))
}

// parseUser reads a user as an image's USER spells it; nil for "".
func parseUser(text string) (*userSpec, error) {
	if text == "" {
		return nil, nil
	}
	who, group, grouped := strings.Cut(text, ":")
	user := &userSpec{}
	if uid := number(who); uid >= 0 {
		user.UID = &uid
	} else {
		user.Name = &who
	}
	if grouped {
		if gid := number(group); gid >= 0 {
			user.GID = &gid
		} else {
			user.Group = &group
		}
	}
	return user, user.valid()
}

// become changes this process, all of its threads included.
func (id *identity) become() error {
	if id.credential() == nil {
		return nil
	}
	if err := syscall.Setgroups(id.Groups); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	if err := syscall.Setgid(id.GID); err != nil {
		return fmt.Errorf("group %d: %w", id.GID, err)
	}
	if err := syscall.Setuid(id.UID); err != nil {
		return fmt.Errorf("user %d: %w", id.UID, err)
	}
	return nil
}
