package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// processes starts the children of PID 1 and waits for every process that ends in the container.
// Waiting happens in one place only: a second waiter could take a status that belongs to a run.
type processes struct {
	mu       sync.Mutex // held over fork and over wait, so that a status always finds its child
	children map[int]*child
}

// child is a process that init started, the leader of a session and process group of its own.
type child struct {
	pid    int
	killed bool
	reaped bool
	exited chan syscall.WaitStatus // gets one value
}

func newProcesses() *processes { return &processes{children: map[int]*child{}} }

// reapForever collects ended processes, orphans included, for the life of the container.
func (p *processes) reapForever() {
	ended := make(chan os.Signal, 1) // one pending signal stands for any number of ends
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		p.reap()
		<-ended
	}
}

func (p *processes) reap() {
	for p.reapOne() {
	}
}

// reapOne holds the lock for one process only: a storm of orphans must not delay a start for long.
func (p *processes) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if c := p.children[pid]; c != nil {
		delete(p.children, pid)
		c.reaped = true
		if c.killed {
			// What joined the group while it was being killed. No later: the number may be given away again.
			syscall.Kill(-pid, syscall.SIGKILL)
		}
		c.exited <- status
	}
	return true
}

// start runs a program as leader of its own session.
func (p *processes) start(program string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := syscall.ForkExec(program, argv, attr)
	if err != nil {
		return nil, err
	}
	c := &child{pid: pid, exited: make(chan syscall.WaitStatus, 1)}
	p.children[pid] = c
	return c, nil
}

// hasEnded: the child has been waited for.
func (p *processes) hasEnded(c *child) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.reaped
}

// killGroup sends SIGKILL to the child's process group; false if its leader has ended and been waited for already.
func (p *processes) killGroup(c *child) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.reaped {
		return false
	}
	c.killed = true
	syscall.Kill(-c.pid, syscall.SIGKILL)
	return true
}
