package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// The kernel delivers to PID 1 of a pid namespace no signal from inside the namespace that PID 1 has not asked for,
// SIGKILL included. But the Go runtime asks for all of them, and a SIGQUIT or a forged SIGSEGV would end it. So init
// (1) gives every signal except the runtime's own its default back, which makes the kernel drop it, and (2) takes
// SIGTERM and SIGINT from a signalfd, which names the sender: the kubelet outside (pid 0) is obeyed, an agent is not.

// stopSignals end the container, in the kernel's bit order.
const stopSignals uint64 = 1<<(syscall.SIGTERM-1) | 1<<(syscall.SIGINT-1)

// signalInfo is where struct signalfd_siginfo (128 bytes) has the sender.
const (
	signalInfoSize = 128
	signalInfoCode = 8
	signalInfoPid  = 12
)

// ensureBlocked returns once the stop signals are blocked in all threads. The runtime gives each thread the mask
// that the process was started with, so the program blocks them in one thread and executes itself again.
func ensureBlocked() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := signalMask(sigBlock, stopSignals)
	if err != nil || old&stopSignals == stopSignals {
		return err
	}
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, os.Environ())
	}
	return fmt.Errorf("starting %s again with signals blocked: %w", path, err)
}

// signalMask changes the mask of this thread and returns the old one.
func signalMask(how int, set uint64) (old uint64, err error) {
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, uintptr(how),
		uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&old)), signalSetBytes, 0, 0)
	return old, errnoErr(e)
}

// dropSignals restores the default of all signals but SIGCHLD (the reaper's) and SIGURG (the runtime's preemption).
func dropSignals() error {
	var defaults [64]byte // struct sigaction with SIG_DFL, no flags, empty mask; larger than the kernel's on any machine
	for number := syscall.Signal(1); number <= 64; number++ {
		switch number {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG:
			continue
		}
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(number),
			uintptr(unsafe.Pointer(&defaults[0])), 0, signalSetBytes, 0, 0)
		if e != 0 {
			return fmt.Errorf("default for signal %d: %w", number, e)
		}
	}
	return nil
}

// waitForStop returns when somebody outside the pid namespace asks for the end; anybody, when `anyone` is set.
func waitForStop(anyone bool) error {
	set := stopSignals
	fd, _, e := syscall.Syscall6(syscall.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&set)),
		signalSetBytes, syscall.O_CLOEXEC, 0, 0)
	if e != 0 {
		return fmt.Errorf("signalfd: %w", e)
	}
	info := make([]byte, signalInfoSize)
	for {
		n, err := syscall.Read(int(fd), info)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != signalInfoSize {
			return fmt.Errorf("reading signals: %d bytes: %w", n, err)
		}
		// Code 0 is kill(2), whose sender the kernel fills in; other codes let the sender write any pid.
		code := binary.NativeEndian.Uint32(info[signalInfoCode:])
		pid := binary.NativeEndian.Uint32(info[signalInfoPid:])
		if anyone || (code == 0 && pid == 0) {
			return nil
		}
	}
}
