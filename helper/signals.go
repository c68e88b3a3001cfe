package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// The kernel delivers to PID 1 of a pid namespace no signal from inside the namespace that PID 1 has not asked for,
// SIGKILL included. But the Go runtime asks for all of them, and a SIGQUIT or a forged SIGSEGV would end it. So init
// gives every signal except the runtime's own its default back, which makes the kernel drop it, and lets SIGTERM and
// SIGINT end it only when they come from outside, from the kubelet: an agent, even as root, cannot end the container.
// The runtime's API does not tell who sent a signal; stopHandler, a few instructions in signals_*.s, looks.

// stopped is the exit code after SIGTERM or SIGINT from outside; stopHandler has it as a number.
const stopped = 128 + int(syscall.SIGTERM)

// stopHandlerAddr and returnAddr are the addresses of the handler and of its way back to the interrupted code.
var stopHandlerAddr, returnAddr uintptr

// sigaction is the kernel's struct on amd64 and arm64.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const (
	saSiginfo  = 0x4
	saOnStack  = 0x08000000 // the stack of a goroutine is too small for a handler
	saRestart  = 0x10000000
	saRestorer = 0x04000000
)

// guardSignals sets all signals as PID 1 needs them. SIGCHLD is the reaper's, SIGURG the runtime's preemption.
func guardSignals() error {
	stop := sigaction{handler: stopHandlerAddr, flags: saSiginfo | saOnStack | saRestart, mask: ^uint64(0)}
	if returnAddr != 0 {
		stop.flags |= saRestorer
		stop.restorer = returnAddr
	}
	for number := syscall.Signal(1); number <= 64; number++ {
		action := sigaction{}
		switch number {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG:
			continue
		case syscall.SIGTERM, syscall.SIGINT:
			action = stop
		}
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(number),
			uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
		if e != 0 {
			return fmt.Errorf("the handler of signal %d: %w", number, e)
		}
	}
	return nil
}

// stopOnSignal ends a process in which senders need not be told apart.
func stopOnSignal(code int) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		os.Exit(code)
	}()
}
