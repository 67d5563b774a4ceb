/* What the laboratory's loads share: markers that the counter of instructions knows, and a word to whoever fails. */
#ifndef LOAD_H
#define LOAD_H

#include <err.h>
#include <errno.h>
#include <stddef.h>

/*
 * A constant moved to the zero register: nothing on any CPU and at any exception level, no trap, no system call, and nothing
 * that a compiler emits. The counter (vmm/recorder-plugin/counter) recognises it when QEMU translates it. Memory accesses stay
 * on the side of it that they are written on.
 */
#define MARKER(number) asm volatile("movz xzr, #%0, lsl #48" : : "i"(number) : "memory")

/* An interval's number is even at its begin and one more at its end. */
#define BEGIN(interval) MARKER(2 * (interval))
#define END(interval) MARKER(2 * (interval) + 1)

/* The intervals, as tests/plugin/folioscope/lab/marks.py names them. */
enum {
	FAULT = 1,	/* the faults: one write or read per page */
	RELEASE = 2,	/* munmap(2) of what was faulted, or free(3) */
	KNOWN = 3,	/* a known number of instructions */
	UNFOLD = 4,	/* one page of each block is changed */
	FOLD = 5,	/* and changed back */
	PASS = 6,	/* a pass over a file: the first, by its system calls or its mapping */
	AGAIN = 7,	/* the same once more */
};

#endif
