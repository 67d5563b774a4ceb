/* SPDX-License-Identifier: GPL-2.0-only */
// Threads that fault on one block at the same time.
#define ROUNDS 20000
static char *shared;
static int arrived, left, last = ROUNDS - 1;

/* Whether an event has reason 9 at some order. */
static int raced(const char *trace)
{
	return strstr(trace, "{0x9,") || strstr(trace, ",0x9,");
}

/*
 * Both threads touch the same block at the same time, again and again. Which
 * round is the last is said before both arrive at it: none waits for one that
 * has ended.
 */
static void *racer(void *first)
{
	int i;

	for (i = 0; i <= __atomic_load_n(&last, __ATOMIC_ACQUIRE); i++) {
		if (first) {
			madvise(shared, page << hinted, MADV_DONTNEED);
			if (i % 1000 == 999 && raced(get(TRACE "trace")))
				__atomic_store_n(&last, i, __ATOMIC_RELEASE);
		}
		__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
		while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < 2 * i + 2)
			;
		shared[first ? 0 : page] = 1;
		__atomic_add_fetch(&left, 1, __ATOMIC_ACQ_REL);
		while (__atomic_load_n(&left, __ATOMIC_ACQUIRE) < 2 * i + 2)
			;
	}
	return NULL;
}

static void races(void)
{
	pthread_t t[2];
	char *at;
	int i;

	policy("variable");
	shared = area(MADV_HUGEPAGE);
	put(TRACE "trace", "");
	put(TRACE "events/anon_order/anon_order/filter", "chosen == -1");
	put(TRACE "events/anon_order/anon_order/enable", "1");
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, racer, i ? NULL : shared);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	put(TRACE "events/anon_order/anon_order/enable", "0");
	put(TRACE "events/anon_order/anon_order/filter", "0");
	at = strstr(get(TRACE "trace"), "policy=variable");
	check(at && raced(at), "two threads race: %.*s",
	      at ? (int)strcspn(at, "\n") : 8, at ? at : "no event");
	check(order_at(shared) == hinted || order_at(shared) == below(hinted) || order_at(shared) == 0,
	      "and one has won: order %d", order_at(shared));
}

/*
 * Writes to zero pages and to folios that fork() has shared, by several threads at
 * once: each writes its own pages of one block, another takes a page away.
 */
#define WRITERS 3
#define WRITE_ROUNDS 60
static pthread_barrier_t together;
static char *block;

static size_t block_pages(void)
{
	return 1UL << hinted;
}

static void *block_writer(void *number)
{
	size_t first = (size_t)number, i;

	pthread_barrier_wait(&together);
	if (first == WRITERS) {
		madvise(block, page, MADV_DONTNEED);
		return NULL;
	}
	for (i = 0; i < block_pages(); i++) {
		if (i % WRITERS == first)
			block[i * page + 8] = i + 1;
	}
	return NULL;
}

/* Whether each page but the first, which may be gone, has @before and @after in it. */
static int block_holds(int before, int after)
{
	size_t i;

	for (i = 1; i < block_pages(); i++) {
		if (block[i * page] != (before ? (char)(i + 2) : 0))
			return 0;
		if (block[i * page + 8] != (after ? (char)(i + 1) : 0))
			return 0;
	}
	return 1;
}

/* A child with the memory as it is, which looks at it when it is told to, and says by its status how it found it. */
static pid_t witness(int pipe_fds[2], int before)
{
	pid_t child;
	char go;

	if (pipe(pipe_fds))
		check(0, "pipe: %s", strerror(errno));
	child = fork();
	if (child)
		return child;
	close(pipe_fds[1]);
	go = read(pipe_fds[0], &go, 1);
	_exit(!block_holds(before, 0));
}

static void write_race(const char *name, int children)
{
	pthread_t t[WRITERS + 1];
	int round, wrong = 0, altered = 0, status, fds[2];
	size_t i;
	pid_t child = 0;

	for (round = 0; round < WRITE_ROUNDS; round++) {
		block = area(MADV_HUGEPAGE);
		for (i = 0; i < block_pages(); i++) {
			if (children)
				block[i * page] = i + 2;
			else
				(void)*(volatile char *)(block + i * page);
		}
		if (children) {
			child = witness(fds, 1);
			close(fds[0]);
			/* One that is left goes before the writes, so that nobody else has the folio. */
			if (children == 1) {
				close(fds[1]);
				waitpid(child, &status, 0);
				altered += status != 0;
			}
		}
		pthread_barrier_init(&together, NULL, WRITERS + 1);
		for (i = 0; i <= WRITERS; i++)
			pthread_create(&t[i], NULL, block_writer, (void *)i);
		for (i = 0; i <= WRITERS; i++)
			pthread_join(t[i], NULL);
		wrong += !block_holds(children, 1);
		if (children == 2) {
			close(fds[1]);
			waitpid(child, &status, 0);
			altered += status != 0;
		}
		munmap(block, 2 * page << pmd_order);
	}
	check(!wrong && !altered, "%s: of %d rounds %d ended with wrong contents, %d with a child's altered",
	      name, WRITE_ROUNDS, wrong, altered);
}

static void write_races(void)
{
	static const char * const names[] = { "zero_page", "reuse", "copy" };
	char path[128];
	size_t i;

	policy("variable");
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), DIR "%s", names[i]);
		check(!strcmp(get(path), "0\n"), "%s is off at boot", names[i]);
		check(try_write(path, "perhaps") == EINVAL, "and is on or off");
		put(path, "1");
	}
	write_race("writes to zero pages", 0);
	write_race("writes to a folio that nobody else has any more", 1);
	write_race("writes to a folio that a child has", 2);
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), DIR "%s", names[i]);
		put(path, "0");
	}
}
