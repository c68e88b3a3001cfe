package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
)

// readBack reads the files of a phase's end. Each stays within its own limit, all together within maxReadBytes.
func readBack(specs []readSpec) []fileResult {
	files := make([]fileResult, 0, len(specs))
	for _, spec := range specs {
		files = append(files, readOne(spec))
	}
	return files
}

// readOne reads a file that must be regular itself and below no link. It opens nothing else: not even a FIFO.
func readOne(spec readSpec) fileResult {
	result := fileResult{Path: spec.Path}
	dir, base, err := openParent(spec.Path, false)
	if err != nil {
		result.State = stateOf(err)
		return result
	}
	defer syscall.Close(dir)
	file, size, err := openRegular(dir, base)
	if err != nil {
		result.State = stateOf(err)
		return result
	}
	defer file.Close()
	result.Size = size
	if size > spec.MaxBytes {
		result.State = "tooLarge"
		return result
	}
	content, err := readLimited(file, size, spec.MaxBytes)
	switch {
	case err != nil:
		result.State = "unreadable"
	case int64(len(content)) > spec.MaxBytes:
		result.State, result.Size = "tooLarge", int64(len(content)) // it grew
	default:
		result.State, result.Size, result.Content = "regular", int64(len(content)), content
	}
	return result
}

// readLimited reads at most one byte more than limit.
func readLimited(file *os.File, size, limit int64) ([]byte, error) {
	var content bytes.Buffer
	content.Grow(int(size) + bytes.MinRead) // what is needed and no more: it stays in memory
	_, err := content.ReadFrom(io.LimitReader(file, limit+1))
	return content.Bytes(), err
}

// openRegular opens a file for reading after making sure that it is a regular one, and again afterwards.
func openRegular(dir int, name string) (*os.File, int64, error) {
	if !isRegular(dir, name) {
		fd, err := openat(dir, name, oPath|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return nil, 0, err
		}
		syscall.Close(fd)
		return nil, 0, errNotRegular
	}
	fd, err := openat(dir, name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		syscall.Close(fd)
		return nil, 0, errNotRegular
	}
	return os.NewFile(uintptr(fd), name), stat.Size, nil
}

var errNotRegular = errors.New("not a regular file")

func stateOf(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return "missing"
	case errors.Is(err, errNotRegular), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		return "notRegular"
	}
	return "unreadable"
}
