/* SPDX-License-Identifier: GPL-2.0-only */
// What faults cost, for the eye.

/* Touch @n pages at @p, and say what that took for each. */
static void timed(const char *name, char *p, size_t n)
{
	struct rusage before, after;
	struct timespec a, b;
	size_t j;

	getrusage(RUSAGE_SELF, &before);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (j = 0; j < n; j++)
		p[j * page] = 2;
	clock_gettime(CLOCK_MONOTONIC, &b);
	getrusage(RUSAGE_SELF, &after);
	printf("# %s: %ld ns per page, %ld faults of %zu pages\n", name,
	       ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec) / (long)n,
	       after.ru_minflt - before.ru_minflt, n);
}

/*
 * What a fault costs under each policy that there is, for the eye. With QEMU's
 * -icount shift=0 a nanosecond is an instruction, and the numbers do not depend
 * on the machine.
 */
static void costs(void)
{
	static const char * const names[] = { "sysfs", "baseline", "simple", "variable", "retry", "adaptive" };
	size_t i, size = 16UL << 20, n = size / page;
	char name[64], *p;

	for (i = 0; i < 24; i++) {
		/* An old kernel, which has no policy, does what sysfs does. */
		if (try_write(DIR "policy", names[i % 6]) && i % 6)
			continue;
		if (try_write(DIR "record", i % 12 < 6 ? "0" : "1") && i % 12 >= 6)
			continue;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		snprintf(name, sizeof(name), "%s, record %zu", names[i % 6], i % 12 / 6);
		timed(name, p, n);
		munmap(p, size);
	}
}

/* The same of writes to zero pages and, by parent and child, to folios that fork() has shared, with the switch of each off and on. */
static void write_costs(void)
{
	static const char * const names[] = { "zero_page", "reuse", "copy" };
	size_t i, j, size = 16UL << 20, n = size / page;
	char path[128], name[64], *p;
	pid_t child;

	if (try_write(DIR "policy", "variable"))
		return;
	put(DIR "record", "0");
	for (i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), DIR "%s", names[i % 6 / 2]);
		snprintf(name, sizeof(name), "%s %zu", names[i % 6 / 2], i % 2);
		if (try_write(path, i % 2 ? "1" : "0"))
			continue;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (j = 0; j < n; j++) {
			if (i % 6 < 2)
				(void)*(volatile char *)(p + j * page);
			else
				p[j * page] = 1;
		}
		child = i % 6 < 2 ? -1 : fork();
		if (!child) {
			if (i % 6 > 3)
				timed(name, p, n);
			_exit(0);
		}
		if (child > 0)
			waitpid(child, NULL, 0);
		if (i % 6 < 4)
			timed(name, p, n);
		munmap(p, size);
		put(path, "0");
	}
}
