package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

const (
	maxRequest = 1 << 20
	maxChunk   = 1 << 20
	maxTrailer = 1 << 20
	sendChunk  = 256 << 10 // what we send: few system calls, little memory
)

// readFrame reads a 4-byte big-endian length and that many bytes, at most limit. io.EOF only before the first byte.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if uint64(size) > uint64(limit) {
		return nil, fmt.Errorf("a frame of %d bytes, more than %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, unexpected(err)
	}
	return body, nil
}

// writeFrame writes a length and body with one write.
func writeFrame(w io.Writer, body []byte) error {
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

// writeJSON writes value as one frame.
func writeJSON(w io.Writer, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeFrame(w, body)
}

// unexpected turns the end of a stream into an error: inside a frame there is no good end.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// trailer ends an archive and proves it: what the sender counted over the bytes of the tar stream.
type trailer struct {
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// errMismatch: an archive arrived whole but is not what its trailer or the request says.
var errMismatch = errors.New("the archive is not what was announced")

// archiveReader reads the bytes of one framed archive and counts and hashes them as they pass.
type archiveReader struct {
	src      *bufio.Reader
	left     uint32 // of the current chunk
	ended    bool
	sum      hash.Hash
	bytes    int64
	limit    int64 // of the tar stream; what exceeds it is an error
	progress func()
}

func newArchiveReader(src *bufio.Reader, limit int64, progress func()) *archiveReader {
	return &archiveReader{src: src, sum: sha256.New(), limit: limit, progress: progress}
}

func (a *archiveReader) Read(p []byte) (int, error) {
	if a.left == 0 {
		if err := a.nextChunk(); err != nil {
			return 0, err
		}
	}
	n, err := a.src.Read(p[:min(len(p), int(a.left))])
	a.sum.Write(p[:n])
	a.left -= uint32(n)
	a.bytes += int64(n)
	if a.bytes > a.limit {
		return n, fmt.Errorf("the archive has more than %d bytes", a.limit)
	}
	return n, unexpected(err)
}

func (a *archiveReader) nextChunk() error {
	if a.ended {
		return io.EOF
	}
	a.progress()
	var header [4]byte
	if _, err := io.ReadFull(a.src, header[:]); err != nil {
		return unexpected(err)
	}
	a.left = binary.BigEndian.Uint32(header[:])
	if a.left > maxChunk {
		return fmt.Errorf("a chunk of %d bytes, more than %d", a.left, maxChunk)
	}
	if a.left == 0 {
		a.ended = true
		return io.EOF
	}
	return nil
}

// finish reads what follows the tar's end and the trailer, and compares. entries is what the reader counted.
func (a *archiveReader) finish(entries int64, digest string) (trailer, error) {
	got := trailer{Entries: entries}
	buffer := make([]byte, 32<<10)
	for {
		if _, err := a.Read(buffer); err == io.EOF {
			break
		} else if err != nil {
			return got, err
		}
	}
	body, err := readFrame(a.src, maxTrailer)
	if err != nil {
		return got, unexpected(err)
	}
	var said trailer
	if err := json.Unmarshal(body, &said); err != nil {
		return got, fmt.Errorf("the archive's trailer: %w", err)
	}
	got.Bytes, got.SHA256 = a.bytes, hex.EncodeToString(a.sum.Sum(nil))
	if said != got {
		return got, fmt.Errorf("%w: trailer says %+v, arrived %+v", errMismatch, said, got)
	}
	if digest != "" && digest != got.SHA256 {
		return got, fmt.Errorf("%w: digest %s wanted, %s arrived", errMismatch, digest, got.SHA256)
	}
	return got, nil
}

// archiveWriter frames, counts and hashes the bytes of one archive. A failed write stays failed.
type archiveWriter struct {
	dst    io.Writer
	buffer []byte // 4 bytes for the length, then the chunk
	sum    hash.Hash
	bytes  int64
	err    error
}

func newArchiveWriter(dst io.Writer) *archiveWriter {
	return &archiveWriter{dst: dst, buffer: make([]byte, 4, 4+sendChunk), sum: sha256.New()}
}

func (a *archiveWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && a.err == nil {
		n := min(len(p), cap(a.buffer)-len(a.buffer))
		a.buffer = append(a.buffer, p[:n]...)
		p = p[n:]
		written += n
		if len(a.buffer) == cap(a.buffer) {
			a.flush()
		}
	}
	return written, a.err
}

func (a *archiveWriter) flush() {
	size := len(a.buffer) - 4
	if size == 0 || a.err != nil {
		return
	}
	a.sum.Write(a.buffer[4:])
	a.bytes += int64(size)
	binary.BigEndian.PutUint32(a.buffer, uint32(size))
	_, a.err = a.dst.Write(a.buffer)
	a.buffer = a.buffer[:4]
}

// close ends the archive; describe makes the trailer from what was counted here.
func (a *archiveWriter) close(describe func(bytes int64, sha256 string) any) error {
	a.flush()
	if a.err != nil {
		return a.err
	}
	if err := writeFrame(a.dst, nil); err != nil {
		return err
	}
	return writeJSON(a.dst, describe(a.bytes, hex.EncodeToString(a.sum.Sum(nil))))
}
