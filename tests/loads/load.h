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
	READ = 8,	/* the whole file, record by record */
	REREAD = 9,
	REVERSE = 10,	/* the last record first */
	STRIDE = 11,	/* each 17th record, round and round until all were read */
	RANDOM_READ = 12,
	RANDOM_WRITE = 13,
};

/* Shared mappings and private ones, or the program ends. */
char *map(size_t bytes, int flags, int fd);
void unmap(char *area, size_t bytes);

/* The loads of files.c. */
void file_map(size_t bytes);
void file_calls(size_t bytes);

#endif
