/* Memory that was used for a while: areas of many sizes come, and go in parts, until what is free lies scattered. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load.h"

#define AREAS 4096
/* Pages: the largest area, by powers of two. */
#define LARGEST 9

struct area {
	char *at;
	size_t pages;
};

static uint64_t state;

/* The same for a seed: a linear congruence, of which the upper bits are good. */
static uint32_t chance(uint32_t below)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (state >> 33) % below;
}

/*
 * In each turn an area that is there loses a part, or all of it, and one that is not comes, as long as there is room. It comes
 * at an address of the kernel's choice, and sizes are as often small as large.
 */
static void age(size_t room)
{
	/* Not among the program's data, which all loads have: a block there would be a folio of theirs. */
	struct area *areas = (void *)map(AREAS * sizeof(*areas), MAP_PRIVATE | MAP_ANONYMOUS, -1);
	size_t used = 0;

	state = seed;
	for (long turn = 0; turn < turns; turn++) {
		uint32_t which = chance(AREAS);
		size_t want = (1 + chance(2)) << chance(LARGEST);

		if (areas[which].pages) {
			size_t part = 1 + chance(areas[which].pages);

			areas[which].pages -= part;
			unmap(areas[which].at + areas[which].pages * page, part * page);
			used -= part;
		} else if (used + want <= room) {
			areas[which].at = map(want * page, MAP_PRIVATE | MAP_ANONYMOUS, -1);
			areas[which].pages = want;
			touch(areas[which].at, want * page);
			used += want;
		}
	}
}

/* What stays for tables and the kernel, so that nobody has to be killed. */
#define SPARE (20UL << 20)

/* Another process ages all memory but that and what this one is to fault; and keeps what it then has meanwhile. */
void aged(size_t bytes)
{
	struct sysinfo info;
	int ready[2];
	char byte = 0;

	if (pipe(ready) || sysinfo(&info))
		err(1, "pipe");
	size_t unused = info.freeram * (size_t)info.mem_unit;

	if (unused < 2 * bytes + SPARE)
		errx(1, "expected %zu bytes free or more and found %zu", 2 * bytes + SPARE, unused);
	size_t room = (unused - bytes - SPARE) / page;
	pid_t other = fork();

	if (other < 0)
		err(1, "fork");
	if (!other) {
		/* Whoever looks at the load's memory does not mean this one; and it ends with the load. */
		prctl(PR_SET_NAME, "aged");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		age(room);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		errx(1, "expected memory that has aged, and the process is gone");
	fault_and_release(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	close(ready[0]);
}
