#include "textflag.h"

// stopHandler(number R0, info R1, context R2) ends the process with 143 if info says that kill(2) was called (si_code 0,
// where the kernel fills in the sender; a sender may write what it likes with other codes) outside this pid namespace
// (si_pid 0). It uses no stack and no register that the kernel does not restore.
TEXT ·stopHandler(SB), NOSPLIT|NOFRAME, $0-0
	MOVWU	8(R1), R3  // si_code
	MOVWU	16(R1), R4 // si_pid
	ORR	R3, R4, R4
	CBNZ	R4, inside
	MOVD	$94, R8    // exit_group
	MOVD	$143, R0
	SVC
inside:
	RET

DATA	·stopHandlerAddr(SB)/8, $·stopHandler(SB)
GLOBL	·stopHandlerAddr(SB), RODATA, $8
// The kernel's vdso has the way back from a handler.
DATA	·returnAddr(SB)/8, $0
GLOBL	·returnAddr(SB), RODATA, $8
