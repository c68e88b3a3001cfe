package main

import (
	"errors"
	"sync/atomic"
	"time"
)

// course is the way of one started phase through its runs.
type course struct {
	supervisor *supervisor
	journal    *journal
	phase      *phase
	end        time.Time     // of the phase's limit; zero for none
	broken     chan struct{} // closed when a background run that must not fail has failed
	failed     atomic.Bool
}

// execute runs a started phase to its end, whoever listens.
func (s *server) execute(p *phase, todo *work) {
	c := &course{supervisor: s.supervisor, journal: s.journal, phase: p, broken: make(chan struct{})}
	if limit := seconds(todo.LimitSeconds); limit > 0 {
		c.end = time.Now().Add(limit)
	}
	runs := c.all(todo.Runs)
	files := readBack(todo.Read)
	s.supervisor.live.order()
	s.journal.awaitEnded(s.supervisor.processes)
	s.journal.finish(p, runs, files)
}

// all gives the results of the runs that were started here and have ended, and of the first that came too late.
// Background runs are the journal's.
func (c *course) all(specs []runSpec) []runResult {
	runs := make([]runResult, 0, len(specs))
	for i := range specs {
		spec := &specs[i]
		if c.failed.Load() {
			break
		}
		if c.over() {
			late := runResult{Name: spec.Name}
			late.notStarted(errors.New("the limit of its phase has passed"))
			return append(runs, late)
		}
		if spec.Background != nil {
			c.begin(spec)
			continue
		}
		result := c.run(spec)
		runs = append(runs, result)
		if !result.succeeded() && !spec.ContinueOnFailure {
			break
		}
	}
	return runs
}

func (c *course) run(spec *runSpec) runResult {
	if spec.Check != nil {
		return c.check(spec)
	}
	result := c.supervisor.run(spec, c.limit(spec.limit()), nil)
	result.Attempts = 1
	return result
}

// check starts a program again and again, until it succeeds or its failures count too much. Whether a failure counts is
// decided by when its attempt began.
func (c *course) check(spec *runSpec) runResult {
	begun, failures := time.Now(), int64(0)
	for attempt := 1; ; attempt++ {
		began := time.Since(begun)
		result := c.supervisor.run(spec, c.limit(spec.limit()), nil)
		result.Attempts, result.Seconds = attempt, time.Since(begun).Seconds()
		if result.succeeded() {
			return result
		}
		pause := seconds(&spec.Check.StartIntervalSeconds)
		if began >= seconds(&spec.Check.StartPeriodSeconds) {
			pause = seconds(&spec.Check.IntervalSeconds)
			if failures++; failures >= spec.Check.Retries {
				return result
			}
		}
		if !c.pause(pause) {
			result.Seconds = time.Since(begun).Seconds()
			result.TimedOut = result.TimedOut || !c.failed.Load() // else the phase's limit leaves no time for another
			return result
		}
	}
}

// begin starts a run that goes on beside the others, and gives it its time to settle.
func (c *course) begin(spec *runSpec) {
	b := c.journal.begin(c.phase)
	go func() {
		result := c.supervisor.run(spec, spec.limit(), func(leader *child) { c.journal.leads(b, leader) })
		result.Attempts = 1
		if !result.succeeded() && !spec.ContinueOnFailure && c.failed.CompareAndSwap(false, true) {
			close(c.broken)
		}
		c.journal.ended(b, result)
	}()
	settle := time.NewTimer(c.limit(max(seconds(&spec.Background.SettleSeconds), 1)))
	defer settle.Stop()
	select {
	case <-b.done:
	case <-settle.C:
	}
}

// pause waits; false, at once, if the phase has no time for that, or if what it does is of no more use.
func (c *course) pause(length time.Duration) bool {
	if !c.end.IsZero() && length >= time.Until(c.end) {
		return false
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !c.failed.Load()
	case <-c.broken:
		return false
	}
}

// limit cuts a run's limit (0: none) to what is left to the phase.
func (c *course) limit(own time.Duration) time.Duration {
	if c.end.IsZero() {
		return own
	}
	left := max(time.Until(c.end), 1)
	if own > 0 {
		return min(own, left)
	}
	return left
}

// over: the phase's limit has passed.
func (c *course) over() bool { return !c.end.IsZero() && !time.Now().Before(c.end) }
