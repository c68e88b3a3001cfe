#include "textflag.h"

// stopHandler(number DI, info SI, context DX) ends the process with 143 if info says that kill(2) was called (si_code 0,
// where the kernel fills in the sender; a sender may write what it likes with other codes) outside this pid namespace
// (si_pid 0). It uses no stack and no register that the kernel does not restore.
TEXT ·stopHandler(SB), NOSPLIT|NOFRAME, $0-0
	MOVL	8(SI), AX  // si_code
	ORL	16(SI), AX // si_pid
	JNE	inside
	MOVL	$231, AX   // exit_group
	MOVL	$143, DI
	SYSCALL
inside:
	RET

// returnFromSignal is where the handler returns to; the kernel insists on one on amd64.
TEXT ·returnFromSignal(SB), NOSPLIT|NOFRAME, $0-0
	MOVL	$15, AX // rt_sigreturn
	SYSCALL
	INT	$3

DATA	·stopHandlerAddr(SB)/8, $·stopHandler(SB)
GLOBL	·stopHandlerAddr(SB), RODATA, $8
DATA	·returnAddr(SB)/8, $·returnFromSignal(SB)
GLOBL	·returnAddr(SB), RODATA, $8
