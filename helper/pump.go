package main

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	pumpBuffer = 64 << 10
	// After the leader's end: what is in the pipe, and what a filter behind it (`| tee`) still has to say.
	lateTime  = 200 * time.Millisecond
	lateBytes = 1 << 20
)

// pump reads a run's pipe as long as anybody holds its other end: a service that the run left behind must never get
// SIGPIPE or be blocked for writing to it. The recorder gets what comes until shortly after the leader's end.
type pump struct {
	pipe     *os.File
	recorder *recorder
	ended    atomic.Bool
	finished chan outputResult
}

// newPump makes the pipe; the writing end is for the child and to be closed by the caller.
func newPump(recorder *recorder) (p *pump, writer int, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	growPipe(fds[0])
	// Only our end: the child's is another open file, and programs expect theirs to block.
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
		return nil, -1, err
	}
	pipe := os.NewFile(uintptr(fds[0]), "output")
	return &pump{pipe: pipe, recorder: recorder, finished: make(chan outputResult, 1)}, fds[1], nil
}

// run pumps until the last writer is gone.
func (p *pump) run() {
	defer p.pipe.Close()
	buffer := make([]byte, pumpBuffer)
	err := p.record(buffer)
	p.finished <- p.recorder.finish()
	p.recorder = nil
	for err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		if err != nil {
			p.pipe.SetReadDeadline(time.Time{})
		}
		_, err = p.pipe.Read(buffer)
	}
}

func (p *pump) record(buffer []byte) error {
	late := 0
	for late < lateBytes {
		n, err := p.pipe.Read(buffer)
		if n > 0 {
			p.recorder.write(buffer[:n])
			if p.ended.Load() {
				late += n
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return p.drain(buffer, lateBytes-late)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drain records what is in the pipe when lateTime is over, however late it is by then: on a busy machine the time may
// pass before the first look, and what the leader printed has been in the pipe since before its end.
func (p *pump) drain(buffer []byte, most int) error {
	if err := p.pipe.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return err
	}
	for most > 0 {
		n, failed := 0, error(nil)
		look := func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), buffer)
			return true // never waits
		}
		if err := raw.Read(look); err != nil {
			return err
		}
		if failed == syscall.EINTR {
			continue
		}
		if failed != nil || n == 0 { // nothing now, or nobody who could write
			return os.ErrDeadlineExceeded
		}
		p.recorder.write(buffer[:n])
		most -= n
	}
	return nil
}

// leaderEnded closes the record and returns it, at most lateTime later.
func (p *pump) leaderEnded() outputResult {
	p.ended.Store(true)
	if err := p.pipe.SetReadDeadline(time.Now().Add(lateTime)); err != nil && !errors.Is(err, os.ErrClosed) {
		p.pipe.Close()
	}
	return <-p.finished
}

// discard is for a run that did not start: no writer is left.
func (p *pump) discard() outputResult {
	p.pipe.Close()
	return p.recorder.finish()
}
