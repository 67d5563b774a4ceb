// SPDX-License-Identifier: GPL-2.0-only
/*
 * Poisons the third page of an area by UFFDIO_POISON, prints where the area is and which process this is, and waits. Without a C
 * library, so that it is small enough to be typed into a guest.
 */
#include <linux/ioctl.h>
#include <linux/mman.h>
#include <linux/userfaultfd.h>

#include "call.h"

#define PAGES 16

static char line[64];
static int length;

static void put(unsigned long value, unsigned int base)
{
	char digits[24];
	int count = 0;

	do {
		digits[count++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	while (count)
		line[length++] = digits[--count];
}

static void text(const char *word)
{
	while (*word)
		line[length++] = *word++;
}

static void wait_for_the_end(void)
{
	line[length++] = '\n';
	call(__NR_write, 1, (long)line, length, 0, 0, 0);
	for (;;)
		call(__NR_ppoll, 0, 0, 0, 0, 0, 0);
}

static void check(const char *what, long result)
{
	if (result >= 0)
		return;
	text(what);
	text(" failed with errno ");
	put(-result, 10);
	wait_for_the_end();
}

void _start(void)
{
	/* Of 64 KiB pages too. */
	unsigned long page = 65536, size = PAGES * page;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct {
		struct uffdio_range range;
		__u64 mode;
		__s64 updated;
	} poison = { .mode = 0 };
	long start, fd;

	start = call(__NR_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("mmap", start);
	fd = call(__NR_userfaultfd, 0, 0, 0, 0, 0, 0);
	check("userfaultfd", fd);
	check("UFFDIO_API", call(__NR_ioctl, fd, UFFDIO_API, (long)&api, 0, 0, 0));
	area.range.start = start;
	area.range.len = size;
	check("UFFDIO_REGISTER", call(__NR_ioctl, fd, UFFDIO_REGISTER, (long)&area, 0, 0, 0));
	/* The third page, of whatever size: 4, 16 or 64 KiB are tried in turn. */
	for (page = 4096; page <= 65536; page *= 4) {
		poison.range.start = start + 2 * page;
		poison.range.len = page;
		/* UFFDIO_POISON: this header may be older. */
		if (call(__NR_ioctl, fd, _IOWR(UFFDIO, 8, poison), (long)&poison, 0, 0, 0) >= 0)
			break;
	}
	check("UFFDIO_POISON", page > 65536 ? -22 : 0);
	text("0x");
	put(start, 16);
	text(" ");
	put(call(__NR_getpid, 0, 0, 0, 0, 0, 0), 10);
	wait_for_the_end();
}
