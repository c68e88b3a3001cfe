package main

import (
	"encoding/json"
	"net"
	"sync"
	"time"
)

const (
	maxPhases = 64
	// maxKept bounds the results in memory. A claim needs room for the largest result that it may leave.
	maxKept     = 64 << 20
	maxPrepared = 1 << 20
	maxResult   = maxReadBytes + maxPrepared + maxRuns*maxInline
)

// journal knows what has been started in this container. It lives in the memory of PID 1, which nobody in the
// container can signal, trace or read; there is no file that could be planted, altered or lost to a full disk.
// A phase goes from claimed to started to done. Only a claim can be taken back; a start never happens twice.
type journal struct {
	mu     sync.Mutex
	phases map[string]*phase
	kept   int64 // what results hold, and what phases without one may still need
}

// phase is one nonce. All fields but nonce and done are the journal's, under its lock.
type phase struct {
	nonce     string
	claimant  *net.UnixConn // the connection that prepares it; nil once it has started
	startedAt time.Time
	prepared  json.RawMessage
	room      int64 // its share of kept
	result    *result
	done      chan struct{} // closed when result is set
}

func newJournal() *journal { return &journal{phases: map[string]*phase{}} }

// claim outcomes.
const (
	claimGranted  = "claimed"
	claimAttach   = "attach"
	claimUnknown  = "unknown"
	claimBusy     = "Busy"
	claimTooMany  = "TooManyPhases"
	messageBusy   = "another connection is preparing this phase"
	messageTooFew = "this container remembers as many phases as it can"
)

// claim gives the phase of a nonce to a connection: to prepare it if it is unknown, to watch it if it has started.
func (j *journal) claim(nonce string, attachOnly bool, claimant *net.UnixConn) (*phase, string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.phases[nonce]
	switch {
	case p != nil && p.claimant != nil:
		return nil, claimBusy
	case p != nil:
		return p, claimAttach
	case attachOnly:
		return nil, claimUnknown
	case len(j.phases) >= maxPhases || j.kept+maxResult > maxKept:
		return nil, claimTooMany
	}
	p = &phase{nonce: nonce, claimant: claimant, done: make(chan struct{})}
	j.phases[nonce] = p
	j.resize(p, maxResult)
	return p, claimGranted
}

func (j *journal) resize(p *phase, room int64) {
	j.kept += room - p.room
	p.room = room
}

// release forgets a claim. It changes nothing once the phase has started.
func (j *journal) release(p *phase) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.claimant != nil {
		delete(j.phases, p.nonce)
		j.resize(p, 0)
	}
}

// start makes a claim a start, for good.
func (j *journal) start(p *phase, prepared json.RawMessage, todo *work) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.claimant = nil
	p.startedAt = time.Now()
	p.prepared = prepared
	j.resize(p, int64(len(prepared))+todo.room())
}

// finish keeps the result of a phase for as long as the container lives.
func (j *journal) finish(p *phase, runs []runResult, files []fileResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.result = &result{
		Prepared: p.prepared, StartedAt: timestamp(p.startedAt), EndedAt: timestamp(time.Now()), Runs: runs, Files: files,
	}
	room := int64(len(p.prepared))
	for _, run := range runs {
		room += int64(len(run.Output.Inline))
	}
	for _, file := range files {
		room += int64(len(file.Content))
	}
	j.resize(p, room)
	close(p.done)
}

// started gives the phase of a nonce if it has started, else nil.
func (j *journal) started(nonce string) *phase {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.phases[nonce]; p != nil && p.claimant == nil {
		return p
	}
	return nil
}

// startTime of a phase that has started.
func (j *journal) startTime(p *phase) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return timestamp(p.startedAt)
}
