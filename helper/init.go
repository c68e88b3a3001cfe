package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
)

// runInit is PID 1: it keeps the container alive until the kubelet ends it, reaps, supervises and remembers.
// SIGTERM ends it at once with exit code 143 (signals.go); nothing has to be saved. It is not 0, because a kubelet that
// evicts a pod, or ends it for another cause of its own, forgets the cause when all containers end well.
func runInit(args []string) error {
	flags := flag.NewFlagSet("init", flag.ExitOnError)
	name := flags.String("name", "main", "name of the socket, one per container of a pod")
	anyPid := flags.Bool("allow-not-pid1", false, "for tests: run without the protection that only PID 1 has")
	inside := flags.Bool("allow-inside", false, "for tests: take requests from processes started inside the container")
	flags.Parse(args)
	if os.Getpid() != 1 && !*anyPid {
		return errors.New("this process is not PID 1, so anybody in the container could kill it; " +
			"make it the container's command and do not share the process namespace")
	}
	keepDescriptors()
	if *anyPid {
		stopOnSignal(stopped)
	} else if err := guardSignals(); err != nil {
		return err
	}
	debug.SetGCPercent(50) // small before fast: this process sleeps
	supervisor, err := newSupervisor()
	if err != nil {
		return err
	}
	listener, err := listen(*name)
	if err != nil {
		return err
	}
	go supervisor.processes.reapForever()
	server := &server{supervisor: supervisor, journal: newJournal(), inside: *inside || *anyPid, files: openFiles()}
	return server.accept(listener)
}

// newSupervisor remembers the container as it is before anything runs in it.
func newSupervisor() (*supervisor, error) {
	cwd, err := currentDirectory()
	if err != nil {
		return nil, err
	}
	null, err := openat(-1, os.DevNull, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", os.DevNull, err)
	}
	counter := openOOMCounter(oomFiles)
	return &supervisor{processes: newProcesses(), null: null, cwd: cwd, env: os.Environ(), oom: counter}, nil
}

// currentDirectory asks the kernel; PWD of the environment may say anything.
func currentDirectory() (string, error) {
	buffer := make([]byte, maxPath+1)
	n, err := syscall.Getcwd(buffer)
	if err != nil || n < 2 || buffer[0] != '/' {
		return "", fmt.Errorf("the working directory: %v", err)
	}
	return string(buffer[:n-1]), nil
}

func socketName(name string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@taskfold/" + name, Net: "unix"}
}

// listen binds the abstract socket: no file, so a read-only or full file system does not matter.
func listen(name string) (*net.UnixListener, error) {
	deadline := time.Now().Add(2 * time.Second)
	for {
		listener, err := net.ListenUnix("unix", socketName(name))
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return listener, err
		}
		time.Sleep(50 * time.Millisecond) // an earlier init of this pod may be about to go
	}
}

// peerOf gives the identity that the kernel recorded for the other end of a connection.
func peerOf(conn *net.UnixConn) (peer *syscall.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	control := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return peer, errors.Join(control, err)
}

// trusted: a peer of our own user, in our own pid namespace (the socket is visible in the whole pod), which was put
// into the container from outside, as an exec does. Only such a process has no parent here, so nothing that the
// agent starts can use up our connections or phases, be it root.
func (s *server) trusted(peer *syscall.Ucred) bool {
	if int(peer.Uid) != os.Geteuid() || peer.Pid <= 0 {
		return false
	}
	if s.inside {
		return true
	}
	parent, known := parentOf(int(peer.Pid))
	if !known {
		// A peer that has ended may have left its connection to somebody else. Where there is no /proc, nobody is known.
		_, working := parentOf(os.Getpid())
		return !working
	}
	return parent == 0
}

// parentOf reads a process's parent from /proc; known is false where there is none.
func parentOf(pid int) (parent int, known bool) {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	buffer := make([]byte, 512)
	n, _ := file.Read(buffer)
	// pid (name) state ppid …; the name may hold anything, parentheses too.
	fields := bytes.Fields(buffer[bytes.LastIndexByte(buffer[:n], ')')+1 : n])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
