/*
 * The laboratory's loads, each a program of a few lines whose marked intervals the counter of instructions tells:
 *
 *     load NAME BYTES [--turns N] [--processes N | --threads N] [--seed N] [--hold]
 *
 * page_fault1 to page_fault3, malloc1, mmap1, read1, read2, context_switch1, tlb_flush1 and tlb_flush2 have the shape of
 * will-it-scale's tests of these names. All set up what they need before the first marker: a load writes nothing and starts
 * nothing between two of them. Bytes and turns are those of each task.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

static const struct {
	const char *name;
	void (*run)(size_t bytes);
	/* What is done once, before the tasks start. */
	void (*before)(size_t bytes);
	/* Whether it can do it more than once. */
	bool turns;
} loads[] = {
	{ "page_fault1", page_fault1, NULL, false },
	{ "page_fault2", page_fault2, NULL, false },
	{ "page_fault3", page_fault3, NULL, false },
	{ "malloc1", malloc1, NULL, true },
	{ "malloc1_turns", malloc1_turns, NULL, true },
	{ "anon_shmem", anon_shmem, NULL, false },
	{ "anon_shmem_parts", anon_shmem_parts, map_common, false },
	{ "fold", fold, NULL, false },
	{ "forks", forks, NULL, false },
	{ "sparse", sparse, NULL, false },
	{ "sparse_behind", sparse_behind, NULL, false },
	{ "sparse_random", sparse_random, NULL, false },
	{ "stacks", stacks, NULL, true },
	{ "mmap1", mmap1, NULL, true },
	{ "read1", read1, NULL, false },
	{ "read2", read2, file_common, false },
	{ "context_switch1", context_switch1, NULL, true },
	{ "tlb_flush1", tlb_flush1, NULL, false },
	{ "tlb_flush2", tlb_flush2, NULL, false },
	{ "file_map", file_map, ramfs, false },
	{ "file_calls", file_calls, ramfs, false },
	{ "tcp", tcp, NULL, true },
	{ "aged", aged, NULL, true },
	{ "compile", compile, NULL, true },
	{ "compile_small", compile_small, NULL, true },
	{ "script", script, NULL, true },
	{ "script_short", script_short, NULL, true },
	{ "known", known, NULL, false },
	{ "known_memory", known_memory, NULL, false },
};

static long count(const char *text)
{
	long number = atol(text);

	if (number < 1)
		errx(2, "expected a number from 1 on and found %s", text);
	return number;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "turns", required_argument, NULL, 'n' },  { "processes", required_argument, NULL, 'p' },
		{ "threads", required_argument, NULL, 't' }, { "seed", required_argument, NULL, 's' },
		{ "hold", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool threads = false, held = false;
	long wanted = 1;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'n':
			turns = count(optarg);
			break;
		case 't':
			threads = true;
			/* fall through */
		case 'p':
			wanted = count(optarg);
			break;
		case 's':
			seed = count(optarg);
			break;
		case 'h':
			held = true;
			break;
		default:
			return 2;
		}
	}
	page = sysconf(_SC_PAGESIZE);
	size_t bytes = argc - optind == 2 ? strtoull(argv[optind + 1], NULL, 0) : 0;

	if (bytes == 0 || bytes % (16 * page))
		errx(2, "usage: load NAME BYTES [--turns N] [--processes N | --threads N] [--seed N] [--hold], the bytes being whole "
			"blocks of 16 pages");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (strcmp(argv[optind], loads[i].name))
			continue;
		if (turns > 1 && !loads[i].turns)
			errx(2, "the load %s has one turn", argv[optind]);
		tasks = wanted;
		if (loads[i].before)
			loads[i].before(bytes);
		crowd(wanted, threads, held, loads[i].run, bytes);
		return 0;
	}
	errx(2, "there is no load %s", argv[optind]);
}
