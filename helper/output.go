package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
)

// recorder keeps the head and the tail of a run's output in one file, which is bounded while it is written: the tail
// is a ring behind the head. At the end the ring is put in order and what is missing is marked. A file that cannot
// be written (disk full) is reported, and never stops the counting: the program that prints must not notice.
type recorder struct {
	mu     sync.Mutex // only a run in the background is looked at by more than its pump
	file   *os.File   // nil: nothing is kept
	head   int64
	tail   int64
	seen   int64 // bytes printed
	pos    int64 // bytes taken into the file's scheme; behind seen once err is set
	turned int64 // where in the tail's scheme the ring began when it was last put in order
	err    error
	inline []byte
	last   int // size of inline
}

// newRecorder opens the output file. It always returns a recorder; one that only counts if there is no file.
func newRecorder(spec *outputSpec) *recorder {
	if spec == nil {
		return &recorder{}
	}
	r := &recorder{head: spec.HeadBytes, tail: spec.TailBytes, last: spec.InlineBytes}
	if spec.Path != nil {
		r.file, r.err = createPath(*spec.Path, syscall.O_RDWR, 0o644, nil)
	}
	return r
}

func (r *recorder) write(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen += int64(len(p))
	r.keepInline(p)
	for len(p) > 0 && r.file != nil && r.err == nil {
		offset, n := r.slot(int64(len(p)))
		if offset >= 0 {
			var written int
			written, r.err = r.file.WriteAt(p[:n], offset)
			n = int64(written)
		}
		r.pos += n
		p = p[n:]
	}
}

// slot says where the next bytes go, and how many of n go there; -1 for bytes that nobody keeps.
func (r *recorder) slot(n int64) (offset, size int64) {
	if r.pos < r.head {
		return r.pos, min(n, r.head-r.pos)
	}
	if r.tail == 0 {
		return -1, n
	}
	inRing := r.inRing()
	return r.head + inRing, min(n, r.tail-inRing)
}

// inRing is the place of the next byte in the ring: of its oldest one, once it is full.
func (r *recorder) inRing() int64 { return (r.pos - r.head - r.turned) % r.tail }

func (r *recorder) keepInline(p []byte) {
	if r.last == 0 {
		return
	}
	p = p[max(0, len(p)-r.last):]
	excess := max(0, len(r.inline)+len(p)-r.last)
	r.inline = append(slices.Delete(r.inline, 0, excess), p...)
}

// finish puts the file in order, closes it and reports. The recorder takes nothing afterwards.
func (r *recorder) finish() outputResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept int64
	if r.file != nil {
		kept = min(r.pos, r.head+r.tail)
		if r.pos > r.head+r.tail {
			if err := r.arrange(r.seen - kept); err != nil && r.err == nil {
				r.err = err
			}
		}
		if err := r.file.Close(); err != nil && r.err == nil {
			r.err = err
		}
		r.file = nil
	}
	result := outputResult{Bytes: r.seen, Kept: kept, Gap: r.seen > kept, Inline: r.inline}
	if r.err != nil {
		text := describe(r.err)
		result.Error = &text
	}
	return result
}

// arrange turns the ring so that its oldest byte comes first and puts the mark in front of it.
func (r *recorder) arrange(left int64) error {
	mark := gapMark(left)
	if r.tail > 0 {
		if err := rotate(r.file, r.head, r.tail, r.inRing()); err != nil {
			return err
		}
		if err := shift(r.file, r.head, r.tail, int64(len(mark))); err != nil {
			return err
		}
	}
	_, err := r.file.WriteAt(mark, r.head)
	return err
}

func gapMark(left int64) []byte { return fmt.Appendf(nil, "\n[taskfold: %d bytes left out]\n", left) }

// order puts the file in order while its run goes on, for whoever copies it now: the ring's oldest byte first, and the
// mark in place of the first ones, which are the next to go.
func (r *recorder) order() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil || r.err != nil || r.pos <= r.head+r.tail {
		return
	}
	left := r.pos - r.head - r.tail
	mark := gapMark(left)
	if r.tail > 0 {
		mark = gapMark(left + int64(len(mark)))
		if r.err = rotate(r.file, r.head, r.tail, r.inRing()); r.err != nil {
			return
		}
		r.turned = (r.pos - r.head) % r.tail
	}
	if r.tail == 0 || r.tail >= int64(len(mark)) {
		_, r.err = r.file.WriteAt(mark, r.head)
	}
}

// recorders are those of the runs that go on in the background.
type recorders struct {
	mu  sync.Mutex
	all []*recorder
}

func (l *recorders) add(r *recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

func (l *recorders) remove(r *recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(other *recorder) bool { return other == r })
}

func (l *recorders) order() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		r.order()
	}
}

const moveBuffer = 128 << 10

// rotate moves the first k of the n bytes at offset behind the others, in place: three reversals.
func rotate(f *os.File, offset, n, k int64) error {
	if k == 0 {
		return nil
	}
	if err := reverse(f, offset, k); err != nil {
		return err
	}
	if err := reverse(f, offset+k, n-k); err != nil {
		return err
	}
	return reverse(f, offset, n)
}

// reverse turns n bytes at offset around.
func reverse(f *os.File, offset, n int64) error {
	low, high := make([]byte, moveBuffer), make([]byte, moveBuffer)
	for start, end := offset, offset+n; end-start > 1; {
		size := min(moveBuffer, (end-start)/2)
		a, b := low[:size], high[:size]
		if err := readFull(f, a, start); err != nil {
			return err
		}
		if err := readFull(f, b, end-size); err != nil {
			return err
		}
		slices.Reverse(a)
		slices.Reverse(b)
		if _, err := f.WriteAt(b, start); err != nil {
			return err
		}
		if _, err := f.WriteAt(a, end-size); err != nil {
			return err
		}
		start, end = start+size, end-size
	}
	return nil
}

// shift moves n bytes at offset up by distance, from the end, so that nothing is overwritten before it was moved.
func shift(f *os.File, offset, n, distance int64) error {
	buffer := make([]byte, moveBuffer)
	for n > 0 {
		size := min(moveBuffer, n)
		n -= size
		if err := readFull(f, buffer[:size], offset+n); err != nil {
			return err
		}
		if _, err := f.WriteAt(buffer[:size], offset+n+distance); err != nil {
			return err
		}
	}
	return nil
}

// readFull: a file that is shorter than what we wrote was cut by somebody else.
func readFull(f *os.File, p []byte, offset int64) error {
	if _, err := f.ReadAt(p, offset); err == io.EOF {
		return errors.New("the file was changed while it was written")
	} else if err != nil {
		return err
	}
	return nil
}

// describe is an error for people: the path that package os puts in front of it is known to the reader.
func describe(err error) string {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
