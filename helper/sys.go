package main

import (
	"syscall"
	"unsafe"
)

// Constants of the kernel that package syscall lacks; the same on amd64 and arm64.
const (
	oPath            = 0x200000
	atRemoveDir      = 0x200
	atNoFollow       = 0x100
	setPipeSize      = 1031
	prSetDumpable    = 4
	sysCloseRange    = 436
	closeRangeOnExec = 4
)

// errnoErr makes an error of an errno; 0 is none.
func errnoErr(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// openat opens name below the descriptor dir; never inherited by children.
func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = syscall.Openat(dir, name, flags|syscall.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

func mkdirat(dir int, name string, mode uint32) error {
	return retry(func() error { return syscall.Mkdirat(dir, name, mode) })
}

// unlinkat removes name below dir; with atRemoveDir an empty directory.
func unlinkat(dir int, name string, flags int) error {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return retry(func() error {
		_, _, e := syscall.Syscall(syscall.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(flags))
		return errnoErr(e)
	})
}

func symlinkat(target string, dir int, name string) error {
	t, err := syscall.BytePtrFromString(target)
	if err != nil {
		return err
	}
	n, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return retry(func() error {
		_, _, e := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(t)), uintptr(dir), uintptr(unsafe.Pointer(n)))
		return errnoErr(e)
	})
}

// linkat makes a second name for a file; a symbolic link is not followed.
func linkat(oldDir int, oldName string, newDir int, newName string) error {
	o, err := syscall.BytePtrFromString(oldName)
	if err != nil {
		return err
	}
	n, err := syscall.BytePtrFromString(newName)
	if err != nil {
		return err
	}
	return retry(func() error {
		_, _, e := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(oldDir), uintptr(unsafe.Pointer(o)),
			uintptr(newDir), uintptr(unsafe.Pointer(n)), 0, 0)
		return errnoErr(e)
	})
}

// readlinkat returns a symbolic link's target, at most 4,096 bytes of it (the kernel's own limit).
func readlinkat(dir int, name string) (string, error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return "", err
	}
	buffer := make([]byte, 4096)
	n, _, e := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(p)),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)), 0, 0)
	if e != 0 {
		return "", e
	}
	return string(buffer[:n]), nil
}

// setTimes sets access and modification time (seconds) of an open file.
func setTimes(fd int, seconds int64) error {
	spec := syscall.NsecToTimespec(0)
	spec.Sec = seconds
	times := [2]syscall.Timespec{spec, spec}
	_, _, e := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
	return errnoErr(e)
}

// setLinkTimes is setTimes for a name below dir, itself if it is a link.
func setLinkTimes(dir int, name string, seconds int64) error {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	spec := syscall.NsecToTimespec(0)
	spec.Sec = seconds
	times := [2]syscall.Timespec{spec, spec}
	_, _, e := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(dir), uintptr(unsafe.Pointer(p)),
		uintptr(unsafe.Pointer(&times[0])), atNoFollow, 0, 0)
	return errnoErr(e)
}

// hide makes this process closed to ptrace and to reads of its memory by everyone without CAP_SYS_PTRACE, processes
// of the same user included: it holds results that must not be altered and secrets that must not be read.
func hide() error {
	_, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	return errnoErr(e)
}

// leaveGroup gives up the group of the program's file, which has one use: because the file is set-group-ID, the kernel
// closes this process as hide does, but from its first instruction on. Else a process of the agent that waits for an
// exec could open its memory before it hides. Where the kernel ignores the bit (no_new_privs: the restricted profile),
// the file's mode does the same: what its user may not read is closed.
func leaveGroup() error {
	if gid := syscall.Getgid(); syscall.Getegid() != gid {
		return syscall.Setresgid(gid, gid, gid)
	}
	return nil
}

// openFiles is how many files this process may have open; 0 if the kernel does not say. A root process of the agent may
// lower it: without a descriptor PID 1 hears nobody, so its end says more than its silence.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

// keepDescriptors makes sure that children inherit none of the descriptors which this process was started with. The
// runtimes hand over none but 0, 1 and 2, so a kernel without the call (before 5.11) is fine.
func keepDescriptors() {
	syscall.RawSyscall(sysCloseRange, 3, uintptr(^uint32(0)), closeRangeOnExec)
}

// growPipe asks for a larger pipe; a refusal only costs speed.
func growPipe(fd int) {
	syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, 256<<10)
}

// writeAll writes all of data to a file descriptor.
func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
