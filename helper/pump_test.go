package main

import (
	"bytes"
	"syscall"
	"testing"
	"time"
)

// TestNothingOfTheLeaderIsLostHoweverLateThePumpIs: the time for late output is over before the pump looks at all, and a
// service that the run left behind holds the pipe open.
func TestNothingOfTheLeaderIsLostHoweverLateThePumpIs(t *testing.T) {
	printed := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	p, writer, err := newPump(newRecorder(&outputSpec{InlineBytes: len(printed)}))
	must(t, err)
	defer syscall.Close(writer)
	must(t, writeAll(writer, printed))
	p.ended.Store(true)
	must(t, p.pipe.SetReadDeadline(time.Now().Add(-lateTime)))
	go p.run()
	if result := <-p.finished; !bytes.Equal(result.Inline, printed) {
		t.Fatalf("%d of %d bytes", result.Bytes, len(printed))
	}
	must(t, writeAll(writer, bytes.Repeat(printed, 8))) // it goes on, and nothing blocks it
}
