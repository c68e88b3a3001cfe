package main

import (
	"bytes"
	"io"
	"syscall"
)

// holeBlock is how much of zeros, at a multiple of it, becomes a hole: the block of the usual file systems.
const holeBlock = 4096

var zeros [holeBlock]byte

// writeSparse writes content to a new, empty file. What is nothing but zeros takes no room on the disk: a file that was
// sparse where it came from would fill it. buffer is a multiple of holeBlock long.
func writeSparse(fd int, content io.Reader, buffer []byte, progress func()) error {
	var at, written int64
	for {
		progress()
		n, err := io.ReadFull(content, buffer)
		end, failed := writeRuns(fd, buffer[:n], at)
		if failed != nil {
			return failed
		}
		written = max(written, end)
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF && ended(content) {
			break
		}
		if err != nil {
			return err
		}
	}
	if written == at {
		return nil
	}
	return retry(func() error { return syscall.Ftruncate(fd, at) }) // a hole at the end
}

// ended tells the good end of a reader, which ReadFull does not tell from one in the middle of what was promised.
func ended(content io.Reader) bool {
	_, err := content.Read(make([]byte, 1))
	return err == io.EOF
}

// writeRuns writes those blocks of data that are not all zeros, as few writes as there are runs of them. end is that of
// the last, 0 if there is none.
func writeRuns(fd int, data []byte, at int64) (end int64, err error) {
	begin := -1
	for i := 0; i < len(data); i += holeBlock {
		block := data[i:min(i+holeBlock, len(data))]
		empty := bytes.Equal(block, zeros[:len(block)])
		if !empty && begin < 0 {
			begin = i
		}
		if empty && begin >= 0 {
			if err := pwriteAll(fd, data[begin:i], at+int64(begin)); err != nil {
				return 0, err
			}
			begin, end = -1, at+int64(i)
		}
	}
	if begin < 0 {
		return end, nil
	}
	return at + int64(len(data)), pwriteAll(fd, data[begin:], at+int64(begin))
}

func pwriteAll(fd int, data []byte, at int64) error {
	for len(data) > 0 {
		n, err := syscall.Pwrite(fd, data, at)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}
