/* What the laboratory's loads share: markers that the counter of instructions knows, and a word to whoever fails. */
#ifndef LOAD_H
#define LOAD_H

#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * A constant moved to the zero register: nothing on any CPU and at any exception level, no trap, no system call, and nothing
 * that a compiler emits. The counter (vmm/recorder-plugin/counter) recognises it when QEMU translates it. Memory accesses stay
 * on the side of it that they are written on.
 */
#define MARKER(number) asm volatile("movz xzr, #%0, lsl #48" : : "i"(number) : "memory")

/*
 * An interval's number is even at its begin and one more at its end. The tasks of a crowd (crowd.c) meet at both, and the
 * first of them marks it, so that one interval has what all of them do.
 */
#define BEGIN(interval) MARK(2 * (interval), (void)0)
#define END(interval) MARK(2 * (interval) + 1, hold())
#define MARK(number, behind)			\
	do {					\
		if (alone) {			\
			MARKER(number);		\
			break;			\
		}				\
		meet();				\
		if (!task)			\
			MARKER(number);		\
		behind;				\
		meet();				\
	} while (0)

/* The intervals, as tests/plugin/folioscope/lab/marks.py names them. */
enum {
	FAULT = 1,	/* the faults: one write or read per page */
	RELEASE = 2,	/* munmap(2) of what was faulted, or free(3) */
	KNOWN = 3,	/* a known number of instructions */
	UNFOLD = 4,	/* one page of each block is changed */
	FOLD = 5,	/* and changed back */
	PASS = 6,	/* a pass over a file: the first, by its system calls or its mapping; programs from their begin to their end */
	AGAIN = 7,	/* the same once more */
	READ = 8,	/* the whole file, record by record */
	REREAD = 9,
	REVERSE = 10,	/* the last record first */
	STRIDE = 11,	/* each 17th record, round and round until all were read */
	RANDOM_READ = 12,
	RANDOM_WRITE = 13,
	SEND_64 = 14,	/* messages of so many bytes, until all are read */
	SEND_128 = 15,
	SEND_256 = 16,
	SEND_1024 = 17,
	SEND_2048 = 18,
	SEND_3312 = 19,
	SEND_4096 = 20,
	SEND_8192 = 21,
	SEND_16384 = 22,
};

/* The size of a page, and how often a load that can do it more than once does it, what chance begins with. */
extern size_t page;
extern long turns;
extern long seed;

/* One store per page. */
void touch(char *area, size_t bytes);

/* Shared mappings and private ones, or the program ends. */
char *map(size_t bytes, int flags, int fd);
void unmap(char *area, size_t bytes);

/* Writes each page of such an area and unmaps it, the two as intervals. */
void fault_and_release(size_t bytes, int flags, int fd);

/* crowd.c: whether this is the only task, and nobody wants to look at it; and which one this is. */
extern bool alone;
extern int tasks;
extern _Thread_local int task;

/* All tasks come here before any goes on. */
void meet(void);

/* Stops the first task at the end of its first interval, if that was asked for: then somebody looks at its memory. */
extern bool holding;
void hold(void);

/* So many tasks, processes or threads, do it once each, on the CPUs in turn; and who stops where (or the program ends). */
void crowd(int count, bool threads, bool held, void (*run)(size_t bytes), size_t bytes);

/* The loads, and what some need to be there before the first task comes. */
void page_fault1(size_t bytes);
void page_fault2(size_t bytes);
void page_fault3(size_t bytes);
void malloc1(size_t bytes);
void malloc1_turns(size_t bytes);
void anon_shmem(size_t bytes);
void anon_shmem_parts(size_t bytes);
void map_common(size_t bytes);
void fold(size_t bytes);
void forks(size_t bytes);
void sparse(size_t bytes);
void sparse_behind(size_t bytes);
void sparse_random(size_t bytes);
void stacks(size_t bytes);
void mmap1(size_t bytes);
void read1(size_t bytes);
void read2(size_t bytes);
void file_common(size_t bytes);
void context_switch1(size_t bytes);
void tlb_flush1(size_t bytes);
void tlb_flush2(size_t bytes);
void file_map(size_t bytes);
void file_calls(size_t bytes);
void ramfs(size_t bytes);
void tcp(size_t bytes);
void aged(size_t bytes);
void compile(size_t bytes);
void compile_small(size_t bytes);
void script(size_t bytes);
void script_short(size_t bytes);
void known(size_t bytes);
void known_memory(size_t bytes);

#endif
