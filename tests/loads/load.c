/*
 * The laboratory's loads, each a program of a few lines whose marked intervals the counter of instructions tells:
 *
 *     load NAME BYTES [RUNS]
 *
 * page_fault1 to page_fault3, malloc1, mmap1, read1, context_switch1, tlb_flush1 and tlb_flush2 have the shape of
 * will-it-scale's tests of these names. All set up what they need before the first marker: a load writes nothing and starts
 * nothing between two of them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

static size_t page;

char *map(size_t bytes, int flags, int fd)
{
	char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (area == MAP_FAILED)
		err(1, "expected a mapping of %zu bytes", bytes);
	return area;
}

void unmap(char *area, size_t bytes)
{
	if (munmap(area, bytes))
		err(1, "munmap of %zu bytes", bytes);
}

/* One store per page. */
static void touch(char *area, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += page)
		((volatile char *)area)[at] = 1;
}

/* A file of this size, whose pages are there, on tmpfs. */
static int file(size_t bytes)
{
	int fd = memfd_create("load", 0);

	if (fd < 0 || ftruncate(fd, bytes))
		err(1, "expected a file of %zu bytes", bytes);
	char *area = map(bytes, MAP_SHARED, fd);

	touch(area, bytes);
	unmap(area, bytes);
	return fd;
}

static void fault_and_release(size_t bytes, int flags, int fd)
{
	char *area = map(bytes, flags, fd);

	BEGIN(FAULT);
	touch(area, bytes);
	END(FAULT);
	BEGIN(RELEASE);
	unmap(area, bytes);
	END(RELEASE);
}

static void page_fault1(size_t bytes)
{
	fault_and_release(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void page_fault2(size_t bytes)
{
	int fd = file(bytes);

	fault_and_release(bytes, MAP_PRIVATE, fd);
	close(fd);
}

static void page_fault3(size_t bytes)
{
	int fd = file(bytes);

	fault_and_release(bytes, MAP_SHARED, fd);
	close(fd);
}

/* Shared anonymous memory that nobody has touched: shmem. */
static void anon_shmem(size_t bytes)
{
	fault_and_release(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

/* Memory that is asked for and given back, of which one page is written. */
static void malloc1(size_t bytes)
{
	mallopt(M_MMAP_THRESHOLD, 65536);
	BEGIN(FAULT);
	char *area = malloc(bytes);

	if (!area)
		err(1, "malloc of %zu bytes", bytes);
	((volatile char *)area)[0] = 1;
	END(FAULT);
	BEGIN(RELEASE);
	free(area);
	END(RELEASE);
}

/*
 * In each block of 16 pages the last one loses the right to be written, which unfolds the block, and gets it back: the kernel
 * looks whether a block can be folded when its last entry is written.
 */
static void fold(size_t bytes)
{
	size_t block = 16 * page;
	char *all = map(bytes + block, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *area = (char *)(((uintptr_t)all + block - 1) & -block);

	touch(area, bytes);
	BEGIN(UNFOLD);
	for (size_t at = 0; at < bytes; at += block)
		mprotect(area + at + 15 * page, page, PROT_READ);
	END(UNFOLD);
	BEGIN(FOLD);
	for (size_t at = 0; at < bytes; at += block)
		mprotect(area + at + 15 * page, page, PROT_READ | PROT_WRITE);
	END(FOLD);
	unmap(all, bytes + block);
}

/* A thousand turns of two instructions (subs, b.ne) behind one that sets the register. */
static void known(size_t bytes)
{
	uint64_t turns;

	(void)bytes;
	BEGIN(KNOWN);
	asm volatile("mov %0, #1000\n1:\tsubs %0, %0, #1\n\tb.ne 1b" : "=r"(turns) : : "cc");
	END(KNOWN);
}

/* Stores to one page and loads from it, none of which faults: an instruction before them, three for each turn. */
static void known_memory(size_t bytes)
{
	uint64_t turns;
	char *area = map(page, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	(void)bytes;
	touch(area, page);
	BEGIN(KNOWN);
	asm volatile("mov %0, #500\n1:\tstr %0, [%1]\n\tldr xzr, [%1]\n\tsubs %0, %0, #1\n\tb.ne 1b"
		     : "=&r"(turns) : "r"(area) : "cc", "memory");
	END(KNOWN);
	unmap(area, page);
}

/* An area that nobody touches. */
static void mmap1(size_t bytes)
{
	BEGIN(PASS);
	char *area = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	unmap(area, bytes);
	END(PASS);
}

/* A file on tmpfs, by records of 4K. */
static void read1(size_t bytes)
{
	char record[4096];
	int fd = file(bytes);

	BEGIN(PASS);
	for (size_t at = 0; at < bytes; at += sizeof(record))
		if (read(fd, record, sizeof(record)) != sizeof(record))
			err(1, "read");
	END(PASS);
	close(fd);
}

static void pass_on(int from, int to)
{
	char byte = 0;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		_exit(1);
}

/* There and back through two pipes: two switches. */
static void there_and_back(int there, int back)
{
	char byte = 0;

	if (write(there, &byte, 1) != 1 || read(back, &byte, 1) != 1)
		err(1, "expected a byte back from the other process");
}

static void context_switch1(size_t bytes)
{
	int there[2], back[2], status;
	(void)bytes;

	if (pipe(there) || pipe(back))
		err(1, "pipe");
	pid_t other = fork();

	if (other < 0)
		err(1, "fork");
	if (!other) {
		pass_on(there[0], back[1]);
		pass_on(there[0], back[1]);
		_exit(0);
	}
	/* The first has the faults of a new process in it. */
	there_and_back(there[1], back[0]);
	BEGIN(PASS);
	there_and_back(there[1], back[0]);
	END(PASS);
	if (waitpid(other, &status, 0) != other || status)
		errx(1, "expected the other process to end well and found status %d", status);
	for (int end = 0; end < 2; end++) {
		close(there[end]);
		close(back[end]);
	}
}

/* Each page is written, taken away, and read. */
static void flush(size_t bytes, int flags, int fd)
{
	char *area = map(bytes, flags, fd);

	BEGIN(FAULT);
	for (size_t at = 0; at < bytes; at += page) {
		((volatile char *)area)[at] = 1;
		madvise(area + at, page, MADV_DONTNEED);
		(void)((volatile char *)area)[at];
	}
	END(FAULT);
	BEGIN(RELEASE);
	unmap(area, bytes);
	END(RELEASE);
}

static void tlb_flush1(size_t bytes)
{
	int fd = file(bytes);

	flush(bytes, MAP_PRIVATE, fd);
	close(fd);
}

static void tlb_flush2(size_t bytes)
{
	flush(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static const struct {
	const char *name;
	void (*run)(size_t bytes);
} loads[] = {
	{ "page_fault1", page_fault1 }, { "page_fault2", page_fault2 }, { "page_fault3", page_fault3 },
	{ "malloc1", malloc1 },		{ "anon_shmem", anon_shmem },	{ "fold", fold },
	{ "mmap1", mmap1 },		{ "read1", read1 },		{ "context_switch1", context_switch1 },
	{ "tlb_flush1", tlb_flush1 },	{ "tlb_flush2", tlb_flush2 },	{ "file_map", file_map },
	{ "file_calls", file_calls },	{ "known", known },		{ "known_memory", known_memory },
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
	long runs = argc > 3 ? atol(argv[3]) : 1;

	if (argc < 3 || argc > 4 || bytes == 0 || bytes % (16 * page) || runs < 1)
		errx(2, "usage: load NAME BYTES [RUNS], the bytes being whole blocks of 16 pages");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (strcmp(argv[1], loads[i].name))
			continue;
		for (long run = 0; run < runs; run++)
			loads[i].run(bytes);
		return 0;
	}
	errx(2, "there is no load %s", argv[1]);
}
