package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// maxWaits bounds the connections that only wait for the end of a phase. A phase has one waiter, a pod one phase to wait for at
// a time; whoever is too many is sent away, and the operator looks by itself.
const maxWaits = 8

// awaitMessage is the first and only message of a waiter to PID 1.
type awaitMessage struct {
	Await string `json:"await"`
}

// await tells another container of the pod when a started phase is done: that it is, never what came out. Such a peer
// is nobody we know, so it gets nothing else, and it can neither claim nor start anything.
func (s *server) await(conn *net.UnixConn) {
	var asked awaitMessage
	conn.SetReadDeadline(time.Now().Add(helloTime))
	body, err := readFrame(conn, maxHello)
	if err != nil || decodeStrict(body, &asked) != nil || !validNonce(asked.Await) {
		return
	}
	p := s.journal.started(asked.Await)
	if p == nil {
		send(conn, event{Event: "unknown"})
		return
	}
	gone := make(chan struct{})
	conn.SetReadDeadline(time.Time{})
	go func() { // ends with the connection, which the caller closes; whatever is said ends it too
		conn.Read(make([]byte, 1))
		close(gone)
	}()
	select {
	case <-p.done:
		send(conn, event{Event: "done"})
	case <-gone:
	}
}

// runWait waits, in a container of its own, until a phase of another container is done. Its end is a signal in the
// pod's status to look at the phase, and never more than that: it cannot tell PID 1 from somebody who answers instead.
func runWait(args []string) error {
	flags := flag.NewFlagSet("wait", flag.ExitOnError)
	name := flags.String("name", "main", "name of the socket of init")
	nonce := flags.String("nonce", "", "the phase")
	flags.Parse(args)
	if !validNonce(*nonce) {
		return errors.New("--nonce: 32 lower-case hexadecimal digits wanted")
	}
	stopOnSignal(1) // the pod ends, the phase may not have
	conn, err := dial(*name)
	if err != nil {
		return err
	}
	if err := writeJSON(conn, awaitMessage{Await: *nonce}); err != nil {
		return err
	}
	c := &client{conn: conn}
	_, last, err := c.receive()
	if err != nil {
		return err
	}
	if last.Event != "done" {
		return fmt.Errorf("phase %s: %s", *nonce, last.Event)
	}
	_, err = fmt.Fprintf(os.Stdout, "phase %s is done\n", *nonce)
	return err
}

// awaitHangup returns true when the writer of standard input has closed it, false where that cannot be told. It reads
// nothing: what is sent belongs to whoever comes next on this stream.
func awaitHangup() bool {
	stdin := struct {
		fd      int32 // 0
		events  int16 // none is wished for: a hang-up is told in any case
		revents int16
	}{}
	return retry(func() error {
		_, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&stdin)), 1, 0, 0, 0, 0)
		return errnoErr(e)
	}) == nil
}
