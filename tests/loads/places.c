/* Loads of our own that write a part of their memory: what a large folio brings beside it is never used. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

#define BLOCK 16

/* An area that begins with a contiguous block, wherever the kernel would have put it. */
static char *aligned(size_t bytes)
{
	size_t block = BLOCK * page;
	char *all = map(bytes + block, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	return (char *)(((uintptr_t)all + block - 1) & -block);
}

/* The first page of each block, from the first one on: the RFC's "touches memory every 64KB". */
void sparse(size_t bytes)
{
	char *area = aligned(bytes);
	const size_t step = BLOCK * page;

	BEGIN(FAULT);
	for (size_t at = 0; at < bytes; at += step)
		((volatile char *)area)[at] = 1;
	END(FAULT);
}

/* The same behind four blocks that were written page by page: what was in a row is followed by what is not. */
void sparse_behind(size_t bytes)
{
	char *area = aligned(bytes);
	const size_t step = BLOCK * page;

	touch(area, 4 * step);
	BEGIN(FAULT);
	for (size_t at = 4 * step; at < bytes; at += step)
		((volatile char *)area)[at] = 1;
	END(FAULT);
}

/* As many pages, each by chance. Some are met twice. */
void sparse_random(size_t bytes)
{
	char *area = aligned(bytes);
	size_t pages = bytes / page, count = pages / BLOCK;
	uint32_t *at = malloc(count * sizeof(*at));
	uint64_t state = seed;

	if (!at)
		err(1, "malloc of %zu numbers", count);
	for (size_t i = 0; i < count; i++) {
		/* Knuth's MMIX; the high bits are the better ones. */
		state = state * 6364136223846793005u + 1442695040888963407u;
		at[i] = (state >> 33) % pages;
	}
	BEGIN(FAULT);
	for (size_t i = 0; i < count; i++)
		((volatile char *)area)[at[i] * page] = 1;
	END(FAULT);
}

/* As many stacks as turns, each with a guard page below: the four pages at the top are written, the highest first. */
void stacks(size_t bytes)
{
	char **tops = malloc(turns * sizeof(*tops));

	if (!tops)
		err(1, "malloc of %ld stacks", turns);
	for (long turn = 0; turn < turns; turn++) {
		char *stack = map(bytes + page, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1);

		if (mprotect(stack, page, PROT_NONE))
			err(1, "mprotect of a guard page");
		tops[turn] = stack + page + bytes;
	}
	const size_t step = page;

	BEGIN(FAULT);
	for (long turn = 0; turn < turns; turn++)
		for (size_t down = step; down <= 4 * step; down += step)
			((volatile char *)tops[turn])[-(ptrdiff_t)down] = 1;
	END(FAULT);
}

/* Memory that a fork shares: written by the child, which ends; then by the parent, who is the only one again. */
void forks(size_t bytes)
{
	char *area = aligned(bytes);
	int status;

	touch(area, bytes);
	BEGIN(PASS);
	pid_t child = fork();

	if (child < 0)
		err(1, "fork");
	if (!child) {
		touch(area, bytes);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		errx(1, "expected the child to end well and found status %#x", status);
	END(PASS);
	BEGIN(AGAIN);
	touch(area, bytes);
	END(AGAIN);
}
