package main

import (
	"bytes"
	"io"
	"path"
	"slices"
	"strings"
)

// scrubber writes what it gets to dst, with every byte that belongs to an occurrence of one of values as a "*": the
// length stays, which a tar's header has promised. Occurrences that overlap are all hidden, so that no end of one
// value shows behind another. It holds back what may be the beginning of an occurrence, and no more.
type scrubber struct {
	dst     io.Writer
	values  [][]byte // the longest first
	next    []int    // where in buffer each value occurs next; len(buffer) for nowhere
	buffer  []byte   // as it came, never grown
	keep    int      // bytes held back: one fewer than the longest value has
	covered int      // so many bytes of buffer belong to occurrences that began before or in it
	count   int64    // occurrences that hid something
}

// newScrubber takes about size bytes at a time.
func newScrubber(dst io.Writer, values [][]byte, size int) *scrubber {
	s := &scrubber{dst: dst, values: slices.Clone(values)}
	slices.SortFunc(s.values, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return bytes.Compare(a, b)
	})
	s.values = slices.CompactFunc(s.values, bytes.Equal)
	s.next = make([]int, len(s.values))
	s.keep = len(s.values[0]) - 1
	s.buffer = make([]byte, 0, s.keep+size)
	return s
}

func (s *scrubber) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), cap(s.buffer)-len(s.buffer))
		s.buffer = append(s.buffer, rest[:n]...)
		rest = rest[n:]
		if len(s.buffer) < cap(s.buffer) {
			continue
		}
		if err := s.pass(len(s.buffer) - s.keep); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush ends a file: what comes next does not continue it.
func (s *scrubber) Flush() error {
	err := s.pass(len(s.buffer))
	s.covered = 0
	return err
}

// pass writes the first n bytes. Every occurrence that begins in them has arrived whole.
func (s *scrubber) pass(n int) error {
	s.hide(n)
	_, err := s.dst.Write(s.buffer[:n])
	s.buffer = s.buffer[:copy(s.buffer, s.buffer[n:])]
	s.covered = max(0, s.covered-n)
	return err
}

// hide goes from occurrence to occurrence. Bytes turn into stars only once no search can need them any more.
func (s *scrubber) hide(n int) {
	for i := range s.values {
		s.next[i] = s.find(i, 0, n)
	}
	for done := 0; ; {
		which := s.first()
		at := s.next[which]
		stop := min(at, n)
		for ; done < min(s.covered, stop); done++ {
			s.buffer[done] = '*'
		}
		done = stop
		if at >= n {
			return
		}
		if end := at + len(s.values[which]); end > s.covered {
			s.covered = end
			s.count++
		}
		for i := range s.next {
			if s.next[i] == at {
				s.next[i] = s.find(i, at+1, n)
			}
		}
	}
}

// first is the value that occurs first; at the same place the longest.
func (s *scrubber) first() int {
	first := 0
	for i, at := range s.next {
		if at < s.next[first] {
			first = i
		}
	}
	return first
}

// find looks for an occurrence of a value that begins at from or later, and before n.
func (s *scrubber) find(which, from, n int) int {
	value := s.values[which]
	end := min(len(s.buffer), n-1+len(value))
	if from < end {
		if at := bytes.Index(s.buffer[from:end], value); at >= 0 {
			return from + at
		}
	}
	return len(s.buffer)
}

// scrubWith makes the packer hide values, but not in files at or below the paths of except.
func (p *packer) scrubWith(values [][]byte, except []string) {
	if len(values) == 0 {
		return
	}
	p.scrub = newScrubber(p.sink, values, sendChunk)
	for _, each := range except {
		p.except = append(p.except, path.Clean(each))
	}
}

// contentWriter takes the content of one file.
type contentWriter interface {
	io.Writer
	Flush() error
}

// contentOf says who takes the content of the file at name.
func (p *packer) contentOf(name string) contentWriter {
	if p.scrub == nil || p.excepted(path.Clean(name)) {
		return p.sink
	}
	return p.scrub
}

func (p *packer) excepted(name string) bool {
	return slices.ContainsFunc(p.except, func(except string) bool {
		rest, below := strings.CutPrefix(name, except)
		return below && (rest == "" || rest[0] == '/' || except == "/")
	})
}
