package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	maxConnections = 64
	helloTime      = 10 * time.Second // for the first message of a connection
	writeTime      = 60 * time.Second // for one event; the peer reads whole events into memory
	aliveInterval  = 20 * time.Second
	yieldTime      = time.Second                       // for a claimant to go by itself before it is killed
	maxHello       = 4<<10 + maxUnless*6*maxUnlessPath // six bytes of JSON a byte, at worst
	maxStart       = maxRequest + maxPrepared + 4<<10
)

// claimMessage is the first message of a connection to PID 1.
type claimMessage struct {
	Nonce       string  `json:"nonce"`
	AttachOnly  bool    `json:"attachOnly"`
	IdleSeconds float64 `json:"idleSeconds"`
	// Unless has paths of which PID 1 is to say whether they were regular files of the image.
	Unless []string `json:"unless,omitempty"`
}

// startMessage ends a preparation. An empty one (a frame of no bytes) only says that the preparation goes on.
type startMessage struct {
	Prepared json.RawMessage `json:"prepared"`
	work
}

// server answers `helper phase` on the abstract socket. A connection has a claim, or watches a started phase; one of
// `helper wait` (wait.go) is told an end.
type server struct {
	supervisor *supervisor
	journal    *journal
	inside     bool // accept processes that were started inside the container (tests)
	shipped    shipped
	files      uint64 // that this process could have open when it began
}

// accept serves connections until the listener fails. Who is at the other end is looked at before anything else, so that
// nobody whom we do not serve can hold a place: at most maxConnections of the operator's, and maxWaits from other
// containers of the pod (their processes have no number here).
func (s *server) accept(listener *net.UnixListener) error {
	phases, waits := make(places, maxConnections), make(places, maxWaits)
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, syscall.EMFILE) && openFiles() < s.files {
			return errors.New("somebody has lowered this process's limit of open files")
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		switch peer, err := peerOf(conn); {
		case err != nil:
			conn.Close()
		case s.trusted(peer):
			phases.serve(conn, func() { s.serve(conn, peer) })
		case peer.Pid == 0:
			waits.serve(conn, func() { s.await(conn) })
		default:
			conn.Close()
		}
	}
}

// places bounds the connections of one sort.
type places chan struct{}

// serve closes the connection after its work, or at once if there is no place.
func (p places) serve(conn *net.UnixConn, work func()) {
	select {
	case p <- struct{}{}:
		go func() {
			defer func() { <-p }()
			defer conn.Close()
			work()
		}()
	default:
		conn.Close()
	}
}

func (s *server) serve(conn *net.UnixConn, peer *syscall.Ucred) {
	var hello claimMessage
	conn.SetReadDeadline(time.Now().Add(helloTime))
	body, err := readFrame(conn, maxHello)
	if err != nil || decodeStrict(body, &hello) != nil || !validNonce(hello.Nonce) ||
		!(hello.IdleSeconds > 0 && hello.IdleSeconds <= maxIdleSeconds) {
		return
	}
	p, outcome := s.journal.claim(hello.Nonce, hello.AttachOnly, conn)
	switch outcome {
	case claimGranted:
		s.prepare(conn, peer, p, &hello)
	case claimAttach:
		s.follow(conn, p, true)
	case claimUnknown:
		send(conn, event{Event: "unknown"})
	case claimBusy:
		send(conn, event{Event: "failed", Reason: outcome, Message: messageBusy})
	case claimForgotten:
		send(conn, event{Event: "failed", Reason: outcome, Message: messageGone})
	case claimTooMany:
		send(conn, event{Event: "failed", Reason: outcome, Message: messageTooFew})
	}
}

// prepare holds a claim until its preparation ends in a start, or in its release.
func (s *server) prepare(conn *net.UnixConn, peer *syscall.Ucred, p *phase, hello *claimMessage) {
	idle := time.Duration(hello.IdleSeconds * float64(time.Second))
	granted := event{
		Event: claimGranted, Path: lookupEnv(s.supervisor.env, "PATH"), Cwd: s.supervisor.cwd,
		Shipped: s.shipped.those(hello.Unless),
	}
	start, err := (*startMessage)(nil), send(conn, granted)
	for err == nil && start == nil {
		conn.SetReadDeadline(time.Now().Add(idle))
		start, err = readStart(conn)
	}
	if err != nil {
		s.release(conn, peer, p, err)
		return
	}
	s.journal.start(p, start.Prepared, &start.work)
	go s.execute(p, &start.work)
	s.follow(conn, p, false)
}

// readStart reads the next message of a claimant; nil for one that only shows life.
func readStart(conn *net.UnixConn) (*startMessage, error) {
	body, err := readFrame(conn, maxStart)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	start := &startMessage{}
	if err := decodeStrict(body, start); err != nil {
		return nil, failed("Protocol", err)
	}
	if len(start.Prepared) > maxPrepared {
		return nil, failed("Protocol", errors.New("the results of the preparation are too large"))
	}
	if err := start.work.validate(); err != nil {
		return nil, failed("Protocol", err)
	}
	return start, nil
}

// release gives a claim back, but only once its claimant can do no more: a process that was stopped in the middle of
// its preparation must never go on beside the next one. The end of the connection is the end of the process.
func (s *server) release(conn *net.UnixConn, peer *syscall.Ucred, p *phase, cause error) {
	defer s.journal.release(p)
	fail := (*failure)(nil)
	switch {
	case errors.As(cause, &fail):
		send(conn, event{Event: "failed", Reason: fail.Reason, Message: fail.Message})
	case errors.Is(cause, os.ErrDeadlineExceeded):
		send(conn, event{Event: "failed", Reason: "Idle", Message: "nothing arrived for idleSeconds; the claim is released"})
	}
	conn.SetReadDeadline(time.Now().Add(yieldTime))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		syscall.Kill(int(peer.Pid), syscall.SIGKILL)
		conn.SetReadDeadline(time.Time{})
		io.Copy(io.Discard, conn)
	}
}

// follow tells a connection about a started phase until it is done or the peer has gone.
func (s *server) follow(conn *net.UnixConn, p *phase, attached bool) {
	gone := make(chan struct{})
	conn.SetReadDeadline(time.Time{})
	go func() { // ends with the connection, which the caller closes
		io.Copy(io.Discard, conn)
		close(gone)
	}()
	err := send(conn, event{Event: "started", StartedAt: s.journal.startTime(p), Attached: &attached})
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for err == nil {
		select {
		case <-p.done:
			send(conn, event{Event: "done", Result: p.result})
			debug.FreeOSMemory() // a result may be 12 MiB as text, and the next one is hours away
			return
		case <-gone:
			return
		case <-alive.C:
			err = send(conn, event{Event: "alive"})
		}
	}
}

func send(conn *net.UnixConn, e event) error {
	conn.SetWriteDeadline(time.Now().Add(writeTime))
	return writeJSON(conn, e)
}
