/* SPDX-License-Identifier: GPL-2.0-only */
/* System calls of programs without a C library. */
#ifndef PROGRAMS_CALL_H
#define PROGRAMS_CALL_H

#include <asm/unistd.h>

/* A system call with up to six arguments; its result, or the negative error. */
static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 asm("x8") = number;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;
	register long x3 asm("x3") = d;
	register long x4 asm("x4") = e;
	register long x5 asm("x5") = f;

	asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}

#endif
