package main

import (
	"bytes"
	"strconv"
	"syscall"
)

// oomFiles count what the container's memory limit killed, as the kernel shows it in the container: version 2 and
// version 1 of cgroups.
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// oomCounter reads the number from a descriptor: what is put at the path later does not matter.
type oomCounter struct{ fd int } // -1: nothing can be read

// openOOMCounter takes the first file that has the number. It is a help for people, so without one we do without.
func openOOMCounter(paths []string) *oomCounter {
	for _, path := range paths {
		// Without a cgroup mount, the image may have anything there; a FIFO must not hold us.
		fd, err := openat(-1, path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != nil {
			continue
		}
		if _, known := readOOMKills(fd); known {
			return &oomCounter{fd}
		}
		syscall.Close(fd)
	}
	return &oomCounter{-1}
}

// kills is how many processes were killed since the cgroup was made; 0 when nobody knows.
func (c *oomCounter) kills() int64 {
	kills, _ := readOOMKills(c.fd)
	return kills
}

// readOOMKills finds the line "oom_kill N". The whole file is a few lines.
func readOOMKills(fd int) (kills int64, known bool) {
	buffer, n := make([]byte, 4096), 0
	err := retry(func() (err error) {
		n, err = syscall.Pread(fd, buffer, 0)
		return err
	})
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(buffer[:n]) {
		number, found := bytes.CutPrefix(line, []byte("oom_kill "))
		if !found {
			continue
		}
		kills, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
		return max(0, kills), err == nil
	}
	return 0, false
}
