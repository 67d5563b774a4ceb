// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps a block at the address of its first argument, asks for huge pages, and writes to it; takes a page's right to be written
 * and gives it back, so that the block is unfolded; then the same with the block. Without a C library.
 *
 *   protects 0x70000000 [STATUS]      ends with STATUS; with "never" it does not end
 */
#include <linux/mman.h>

#include "call.h"

#define PAGE 4096UL
#define BLOCK (16 * PAGE)
#define BOTH (PROT_READ | PROT_WRITE)

static unsigned long number(const char *text, unsigned int base)
{
	unsigned long value = 0;

	for (; *text; text++)
		value = value * base + (*text >= 'a' ? *text - 'a' + 10 : *text - '0');
	return value;
}

static void write_block(volatile char *at)
{
	for (unsigned long page = 0; page < BLOCK; page += PAGE)
		at[page] = 1;
}

static const char SAID[] = "protected \033[31m\n";

int run(long argc, char **argv)
{
	unsigned long at = number(argv[1] + 2, 16);
	char *block = (char *)at;

	if (call(__NR_mmap, at, 2 * BLOCK, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != (long)at)
		return 100;
	if (call(__NR_madvise, at, 2 * BLOCK, MADV_HUGEPAGE, 0, 0, 0))
		return 101;
	write_block(block);
	if (call(__NR_mprotect, at + 5 * PAGE, PAGE, PROT_READ, 0, 0, 0) ||
	    call(__NR_mprotect, at + 5 * PAGE, PAGE, BOTH, 0, 0, 0) ||
	    call(__NR_mprotect, at, BLOCK, PROT_READ, 0, 0, 0) || call(__NR_mprotect, at, BLOCK, BOTH, 0, 0, 0))
		return 102;
	write_block(block);
	call(__NR_write, 1, (long)SAID, sizeof(SAID) - 1, 0, 0, 0);
	if (argc < 3)
		return 0;
	while (argv[2][0] == 'n')
		call(__NR_ppoll, 0, 0, 0, 0, 0, 0);
	return number(argv[2], 10);
}

asm(".globl _start\n"
    "_start:\n"
    "	ldr x0, [sp]\n"
    "	add x1, sp, #8\n"
    "	bl run\n"
    "	mov x8, #94\n" /* __NR_exit_group */
    "	svc 0\n");
