/* Loads of the shape of will-it-scale's tests of their names, and shared anonymous memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

size_t page;
long turns = 1;
long seed = 1;

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
void touch(char *area, size_t bytes)
{
	/* In a register: no other load than the store's is wanted. */
	const size_t step = page;

	for (size_t at = 0; at < bytes; at += step)
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

void fault_and_release(size_t bytes, int flags, int fd)
{
	char *area = map(bytes, flags, fd);

	BEGIN(FAULT);
	touch(area, bytes);
	END(FAULT);
	BEGIN(RELEASE);
	unmap(area, bytes);
	END(RELEASE);
}

void page_fault1(size_t bytes)
{
	fault_and_release(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void page_fault2(size_t bytes)
{
	int fd = file(bytes);

	fault_and_release(bytes, MAP_PRIVATE, fd);
	close(fd);
}

void page_fault3(size_t bytes)
{
	int fd = file(bytes);

	fault_and_release(bytes, MAP_SHARED, fd);
	close(fd);
}

/* Shared anonymous memory that nobody has touched: shmem. */
void anon_shmem(size_t bytes)
{
	fault_and_release(bytes, MAP_SHARED | MAP_ANONYMOUS, -1);
}

/* One such area for all tasks, of which each has its part: mapped before they start. */
static char *common;

void map_common(size_t bytes)
{
	common = map(bytes * tasks, MAP_SHARED | MAP_ANONYMOUS, -1);
}

void anon_shmem_parts(size_t bytes)
{
	BEGIN(FAULT);
	touch(common + task * bytes, bytes);
	END(FAULT);
	if (!task)
		unmap(common, bytes * tasks);
}

/* Memory that is asked for and given back, of which one page is written. */
static char *ask(size_t bytes)
{
	char *area = malloc(bytes);

	if (!area)
		err(1, "malloc of %zu bytes", bytes);
	((volatile char *)area)[0] = 1;
	return area;
}

void malloc1(size_t bytes)
{
	mallopt(M_MMAP_THRESHOLD, 65536);
	for (long turn = 0; turn < turns; turn++) {
		BEGIN(FAULT);
		char *area = ask(bytes);

		END(FAULT);
		BEGIN(RELEASE);
		free(area);
		END(RELEASE);
	}
}

/* The same as one interval, for a crowd: to meet costs as much as a turn. */
void malloc1_turns(size_t bytes)
{
	mallopt(M_MMAP_THRESHOLD, 65536);
	BEGIN(PASS);
	for (long turn = 0; turn < turns; turn++)
		free(ask(bytes));
	END(PASS);
}

/* An area that nobody touches. */
void mmap1(size_t bytes)
{
	BEGIN(PASS);
	for (long turn = 0; turn < turns; turn++)
		unmap(map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes);
	END(PASS);
}

/* Records of 4K, from the file's start. */
static void records(int fd, size_t bytes)
{
	char record[4096];

	BEGIN(PASS);
	for (size_t at = 0; at < bytes; at += sizeof(record))
		if (pread(fd, record, sizeof(record), at) != sizeof(record))
			err(1, "read");
	END(PASS);
}

/* A file on tmpfs of each task's own. */
void read1(size_t bytes)
{
	int fd = file(bytes);

	records(fd, bytes);
	close(fd);
}

/* One for all. */
static int shared;

void file_common(size_t bytes)
{
	shared = file(bytes);
}

void read2(size_t bytes)
{
	records(shared, bytes);
	if (!task)
		close(shared);
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

void context_switch1(size_t bytes)
{
	int there[2], back[2], status;
	(void)bytes;

	if (pipe(there) || pipe(back))
		err(1, "pipe");
	pid_t other = fork();

	if (other < 0)
		err(1, "fork");
	if (!other) {
		for (long turn = 0; turn <= turns; turn++)
			pass_on(there[0], back[1]);
		_exit(0);
	}
	/* The first has the faults of a new process in it. */
	there_and_back(there[1], back[0]);
	BEGIN(PASS);
	for (long turn = 0; turn < turns; turn++)
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

	const size_t step = page;

	BEGIN(FAULT);
	for (size_t at = 0; at < bytes; at += step) {
		((volatile char *)area)[at] = 1;
		madvise(area + at, step, MADV_DONTNEED);
		(void)((volatile char *)area)[at];
	}
	END(FAULT);
	BEGIN(RELEASE);
	unmap(area, bytes);
	END(RELEASE);
}

void tlb_flush1(size_t bytes)
{
	int fd = file(bytes);

	flush(bytes, MAP_PRIVATE, fd);
	close(fd);
}

void tlb_flush2(size_t bytes)
{
	flush(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}
