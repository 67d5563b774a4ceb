// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starts a thread that sleeps, and a process that has this one's memory and sleeps too, as between vfork() and execve(): this
 * one waits for that. Without a C library.
 */
#include <linux/sched.h>

#include "call.h"

#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define VFORK (CLONE_VM | CLONE_VFORK)

static char stack[4096] __attribute__((aligned(16)));

/* Neither comes back: what the C code has on the stack is the caller's alone. */
static void sleeper(unsigned long flags, char *top)
{
	register long x8 asm("x8") = __NR_clone;
	register long x0 asm("x0") = flags;
	register long x1 asm("x1") = (long)top;
	register long x2 asm("x2") = 0;
	register long x3 asm("x3") = 0;
	register long x4 asm("x4") = 0;

	asm volatile("svc 0\n"
		     "cbnz x0, 2f\n"
		     "1: mov x0, #0\n"
		     "mov x1, #0\n"
		     "mov x2, #0\n"
		     "mov x3, #0\n"
		     "mov x4, #0\n"
		     "mov x8, %[ppoll]\n"
		     "svc 0\n"
		     "b 1b\n"
		     "2:\n"
		     : "+r"(x8), "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3), "+r"(x4)
		     : [ppoll] "i"(__NR_ppoll)
		     : "memory");
}

void _start(void)
{
	sleeper(THREAD, stack + sizeof(stack));
	sleeper(VFORK, 0);
	call(__NR_exit_group, 1, 0, 0, 0, 0, 0);
}
