package main

import (
	"encoding/json"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	maxPhases    = 64
	maxRecent    = 4    // of an agent's work and its verification, with its hooks, and one more
	maxForgotten = 4096 // nonces
	// maxKept bounds the results in memory. A claim needs room for the largest result that it may leave.
	maxKept     = 64 << 20
	maxPrepared = 1 << 20
	maxResult   = maxReadBytes + maxPrepared + maxRuns*maxInline
)

// journal knows what has been started in this container. It lives in the memory of PID 1, which nobody in the
// container can signal, trace or read; there is no file that could be planted, altered or lost to a full disk.
// A phase goes from claimed to started to done. Only a claim can be taken back; a start never happens twice.
type journal struct {
	mu         sync.Mutex
	phases     map[string]*phase
	kept       int64            // what results hold, and what phases without one may still need
	done       []*phase         // in the order of their ends
	forgotten  map[string]bool  // nonces of phases that gave way to later ones
	background []*backgroundRun // of all phases, in the order of their starts
}

// backgroundRun goes on beside the phases. All fields but nonce and done are the journal's, under its lock.
type backgroundRun struct {
	nonce  string
	leader *child        // nil until it has started
	result *runResult    // nil until the end
	done   chan struct{} // closed when result is set
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

func newJournal() *journal {
	return &journal{phases: map[string]*phase{}, forgotten: map[string]bool{}}
}

// claim outcomes.
const (
	claimGranted = "claimed"
	claimAttach  = "attach"
	claimUnknown = "unknown"
	claimBusy    = "Busy"
	claimTooMany = "TooManyPhases"
	// A phase of long ago: it was done, and its result gave way to those of later ones.
	claimForgotten = "Forgotten"
	messageBusy    = "another connection is preparing this phase"
	messageTooFew  = "this container remembers as many phases as it can"
	messageGone    = "the phase was done, and its result is no longer remembered"
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
	case p == nil && j.forgotten[nonce]:
		return nil, claimForgotten
	case !j.makeRoom():
		return nil, claimTooMany
	}
	p = &phase{nonce: nonce, claimant: claimant, done: make(chan struct{})}
	j.phases[nonce] = p
	j.resize(p, maxResult)
	return p, claimGranted
}

// makeRoom makes place for one phase more: results of phases that were done long ago are forgotten, the oldest first,
// never the last maxRecent. Their nonces stay known: nothing starts twice.
func (j *journal) makeRoom() bool {
	for len(j.phases) >= maxPhases || j.kept+maxResult > maxKept {
		if len(j.done) <= maxRecent || len(j.forgotten) >= maxForgotten {
			return false
		}
		oldest := j.done[0]
		j.done = j.done[1:]
		delete(j.phases, oldest.nonce)
		j.forgotten[oldest.nonce] = true
		j.resize(oldest, 0)
	}
	return true
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
		Background: j.endedOnes(),
	}
	room := int64(len(p.prepared))
	for _, run := range runs {
		room += int64(len(run.Output.Inline))
	}
	for _, file := range files {
		room += int64(len(file.Content))
	}
	for _, other := range p.result.Background {
		room += int64(len(other.Run.Output.Inline))
	}
	j.resize(p, room)
	j.done = append(j.done, p)
	close(p.done)
}

// begin notes a background run of a phase that goes on.
func (j *journal) begin(p *phase) *backgroundRun {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := &backgroundRun{nonce: p.nonce, done: make(chan struct{})}
	j.background = append(j.background, b)
	return b
}

func (j *journal) ended(b *backgroundRun, result runResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b.result = &result
	close(b.done)
}

func (j *journal) leads(b *backgroundRun, leader *child) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b.leader = leader
}

// awaitEnded waits for the results of background runs whose leaders have ended, which takes a moment (lateTime): a phase
// that ends after such a leader tells of it.
func (j *journal) awaitEnded(processes *processes) {
	j.mu.Lock()
	background := slices.Clone(j.background)
	leaders := make([]*child, len(background))
	for i, b := range background {
		leaders[i] = b.leader
	}
	j.mu.Unlock()
	for i, b := range background {
		if leaders[i] != nil && processes.hasEnded(leaders[i]) {
			<-b.done
		}
	}
}

func (j *journal) endedOnes() []backgroundResult {
	ended := []backgroundResult{}
	for _, b := range j.background {
		if b.result != nil {
			ended = append(ended, backgroundResult{b.nonce, *b.result})
		}
	}
	return ended
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
