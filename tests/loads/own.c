/* Loads of our own: what a fold and an unfold cost, and programs of known length. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>

#include "load.h"

/*
 * In each block of 16 pages the last one loses the right to be written, which unfolds the block, and gets it back: the kernel
 * looks whether a block can be folded when its last entry is written.
 */
void fold(size_t bytes)
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
void known(size_t bytes)
{
	uint64_t left;

	(void)bytes;
	MARKER(2 * KNOWN);
	asm volatile("mov %0, #1000\n1:\tsubs %0, %0, #1\n\tb.ne 1b" : "=r"(left) : : "cc");
	MARKER(2 * KNOWN + 1);
}

/* Stores to one page and loads from it, none of which faults: an instruction before them, three for each turn. */
void known_memory(size_t bytes)
{
	uint64_t left;
	char *area = map(page, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	(void)bytes;
	touch(area, page);
	MARKER(2 * KNOWN);
	asm volatile("mov %0, #500\n1:\tstr %0, [%1]\n\tldr xzr, [%1]\n\tsubs %0, %0, #1\n\tb.ne 1b"
		     : "=&r"(left) : "r"(area) : "cc", "memory");
	MARKER(2 * KNOWN + 1);
	unmap(area, page);
}
