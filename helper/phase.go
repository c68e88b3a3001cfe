package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	maxEvent     = 64 << 20 // of PID 1, which is trusted; files of 9 MiB are 12 MiB of base64
	beatInterval = time.Second
	connectTime  = 5 * time.Second
)

// runPhase prepares a phase and hands it to PID 1, or attaches to it, and relays its events until the last one.
// It exits with 0 only after a final event. It holds no state that matters: killed at any moment, either nothing was
// started, or PID 1 goes on without it.
func runPhase(args []string) error {
	flags := flag.NewFlagSet("phase", flag.ExitOnError)
	name := flags.String("name", "main", "name of the socket of init")
	anyPid := flags.Bool("allow-not-pid1", false, "for tests: talk to an init that is not PID 1")
	flags.Parse(args)
	signal.Ignore(syscall.SIGPIPE) // a client that has gone is seen as an error of a write
	syscall.Umask(0)               // modes are what the request says
	in := bufio.NewReaderSize(os.Stdin, sendChunk)
	out := &emitter{}
	body, err := readFrame(in, maxRequest)
	if err == io.EOF {
		return nil // a client that kept the stream wants nothing more
	}
	if asked := packAskedFor(body); err == nil && asked != nil {
		keep, err := packAsked(asked)
		if err == nil && keep {
			anew(in)
		}
		return err
	}
	request, err := parseRequest(body, err)
	if err != nil {
		out.final(event{Event: "failed", Reason: "Protocol", Message: err.Error()})
	}
	conn, err := connect(*name, *anyPid)
	if err != nil {
		return fmt.Errorf("the container's supervisor: %w", err)
	}
	if request.Keep {
		out.again = func() { anew(in) }
	}
	c := &client{conn: conn, in: in, out: out}
	return c.run(request)
}

// packAskedFor is the request of a copy in place of a phase, `{"pack": …}`: what a client that kept the stream may want
// too. Nil if it is none.
func packAskedFor(body []byte) []byte {
	var other struct {
		Pack json.RawMessage `json:"pack"`
	}
	if json.Unmarshal(body, &other) != nil {
		return nil
	}
	return other.Pack
}

// parseRequest takes what reading the request gave.
func parseRequest(body []byte, err error) (*request, error) {
	if err != nil {
		return nil, fmt.Errorf("the request: %w", unexpected(err))
	}
	request := &request{}
	if err := decodeStrict(body, request); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	return request, request.validate()
}

// connect reaches PID 1 and makes sure that it is PID 1: the socket's name is free for anybody in the pod to take while
// no init has it.
func connect(name string, anyPid bool) (*net.UnixConn, error) {
	conn, err := dial(name)
	if err != nil {
		return nil, err
	}
	peer, err := peerOf(conn)
	if err == nil && ((peer.Pid != 1 && !anyPid) || int(peer.Uid) != os.Geteuid()) {
		err = fmt.Errorf("process %d of user %d answers instead", peer.Pid, peer.Uid)
	}
	return conn, err
}

// dial reaches whoever has the name, which may just be starting.
func dial(name string) (*net.UnixConn, error) {
	deadline := time.Now().Add(connectTime)
	for {
		conn, err := net.DialUnix("unix", nil, socketName(name))
		if err == nil {
			return conn, nil
		}
		if time.Now().After(deadline) || !(errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)) {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// client is one `helper phase` with its connection to PID 1.
type client struct {
	conn *net.UnixConn
	in   *bufio.Reader
	out  *emitter
	last time.Time // of a beat
}

func (c *client) run(r *request) error {
	unless, err := unlessPaths(r.Prepare)
	if err != nil { // not reached: the request was validated
		return err
	}
	hello := claimMessage{Nonce: r.Nonce, AttachOnly: r.AttachOnly, IdleSeconds: r.IdleSeconds, Unless: unless}
	if err := writeJSON(c.conn, hello); err != nil {
		return err
	}
	body, first, err := c.receive()
	if err != nil {
		return err
	}
	if first.Event != claimGranted {
		c.relay(body, first)
		return c.relayAll()
	}
	relayed := make(chan error, 1)
	go func() { relayed <- c.relayAll() }() // also while we prepare: the claim may be lost
	p := &preparation{
		in: c.in, path: first.Path, cwd: first.Cwd, shipped: first.Shipped, progress: c.beat,
		send: func() { c.out.emit(event{Event: "send"}) },
	}
	results, err := p.run(r.Prepare)
	if err == nil {
		err = c.start(r, results)
	}
	if fail := (*failure)(nil); errors.As(err, &fail) {
		// Let go of the claim first: whoever reads "failed" may try again at once.
		c.conn.CloseWrite()
		c.conn.SetReadDeadline(time.Now().Add(connectTime))
		<-relayed
		c.out.final(event{Event: "failed", Reason: fail.Reason, Message: fail.Message, Results: results})
	}
	// Without a failure of our own, PID 1 has the last word.
	return <-relayed
}

// start hands the phase to PID 1. The client is told first: if it has gone, nothing starts.
func (c *client) start(r *request, results []any) error {
	encoded, err := json.Marshal(results)
	if err == nil && len(encoded) > maxPrepared {
		err = errors.New("the results of the preparation are too large")
	}
	if err != nil {
		return failed("Prepare", err)
	}
	c.out.emit(preparedEvent{Event: "prepared", Results: results})
	return writeJSON(c.conn, startMessage{Prepared: encoded, work: r.work})
}

// preparedEvent is an event whose results are printed even if there are none.
type preparedEvent struct {
	Event   string `json:"event"`
	Results []any  `json:"results"`
}

// beat tells PID 1 that the preparation makes progress.
func (c *client) beat() {
	if now := time.Now(); now.Sub(c.last) >= beatInterval {
		c.last = now
		writeFrame(c.conn, nil) // a lost connection is the relay's business
	}
}

func (c *client) receive() ([]byte, event, error) {
	var e struct {
		Event   string   `json:"event"`
		Path    string   `json:"path"`
		Cwd     string   `json:"cwd"`
		Shipped []string `json:"shipped"`
	}
	body, err := readFrame(c.conn, maxEvent)
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		return nil, event{}, fmt.Errorf("the container's supervisor ended the connection: %w", err)
	}
	return body, event{Event: e.Event, Path: e.Path, Cwd: e.Cwd, Shipped: e.Shipped}, nil
}

// relayAll prints what PID 1 says until the last word. It returns only with an error.
func (c *client) relayAll() error {
	for {
		body, e, err := c.receive()
		if err != nil {
			return err
		}
		c.relay(body, e)
	}
}

func (c *client) relay(body []byte, e event) {
	switch e.Event {
	case "done", "failed", "unknown":
		c.out.print(body, true)
	case "started":
		c.out.print(body, false)
		go c.leave()
	default:
		c.out.print(body, false)
	}
}

// leave ends this process when the client of a started phase has ended its input: it does not want to wait any longer.
func (c *client) leave() {
	if awaitHangup() {
		c.out.leave()
	}
}

// emitter prints events, one JSON object a line, from two goroutines. The final one ends the process, so there is
// exactly one. So does a client that has gone.
type emitter struct {
	mu    sync.Mutex
	again func() // instead of an end, after a phase that is done
}

// anew starts this program again on the same stream, for the next phase: what belonged to the last one is gone, down to
// its memory. It returns only if that cannot be. Input that is here already would be lost: the client speaks next only
// after it has heard the end.
func anew(in *bufio.Reader) {
	if in.Buffered() == 0 {
		syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}

// leave says that the phase goes on, and ends. Another final event may be faster.
func (o *emitter) leave() {
	o.mu.Lock()
	o.again = nil // there is no next phase on a stream without input
	o.mu.Unlock()
	o.final(event{Event: "running"})
}

func (o *emitter) emit(e any)  { o.encode(e, false) }
func (o *emitter) final(e any) { o.encode(e, true) }

func (o *emitter) encode(e any, final bool) {
	body, err := json.Marshal(e)
	if err != nil { // not reached: events hold nothing that cannot be encoded
		body = []byte(`{"event":"failed","reason":"Protocol","message":"an event that cannot be encoded"}`)
	}
	o.print(body, final)
}

func (o *emitter) print(body []byte, final bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := writeAll(1, append(body, '\n')); err != nil {
		os.Exit(1)
	}
	if !final {
		return
	}
	if o.again != nil {
		o.again()
	}
	os.Exit(0)
}
