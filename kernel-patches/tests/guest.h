/* SPDX-License-Identifier: GPL-2.0-only */
// What the checks in init.c stand on: they say ok or not ok, set knobs, fault pages and read what came of it.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define DIR THP "anon_order/"
#define COUNTS "/sys/kernel/debug/anon_order_counts"
#define BLOCKS "/sys/kernel/debug/contpte_events"
#define TRACE "/sys/kernel/tracing/"
#define FAIL "/sys/kernel/debug/fail_page_alloc/"

static size_t page;
static int page_shift, pmd_order, hinted, unhinted;
static int number, failed, may_fail;

static void check(int ok, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", ok ? "" : "not ", ++number);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	failed += !ok;
}

static int try_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);
	int err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		err = errno;
	close(fd);
	return err;
}

static void put(const char *path, const char *fmt, ...)
{
	char text[64];
	va_list ap;
	int err;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err = try_write(path, text);
	if (err)
		check(0, "write %s to %s: %s", text, path, strerror(err));
}

static char *get(const char *path)
{
	static char text[1 << 18];
	int fd = open(path, O_RDONLY);
	ssize_t n = 0, got;

	if (fd >= 0) {
		while (n < (ssize_t)sizeof(text) - 1 &&
		       (got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
			n += got;
		close(fd);
	}
	text[n] = 0;
	return text;
}

static void policy(const char *name)
{
	put(DIR "policy", "%s", name);
}

static void size_enabled(int order, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), THP "hugepages-%zukB/enabled", (page << order) / 1024);
	put(path, "%s", value);
}

static long stat_of(int order, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), THP "hugepages-%zukB/stats/%s", (page << order) / 1024, name);
	return atol(get(path));
}

/* Read one 64-bit word of a table indexed by page. */
static uint64_t word(const char *path, uint64_t index)
{
	uint64_t w = 0;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || pread(fd, &w, 8, index * 8) != 8)
		check(0, "read %s: %s", path, strerror(errno));
	close(fd);
	return w;
}

/* The order of the folio mapped at @p, -1 if there is none. */
static int order_at(void *p)
{
	uint64_t pte = word("/proc/self/pagemap", (uintptr_t)p / page);
	uint64_t pfn = pte & ((1ULL << 55) - 1), head, end;
	int order = 0;

	if (!(pte >> 63))
		return -1;
	for (head = pfn; word("/proc/kpageflags", head) >> 16 & 1; head--)
		;
	if (!(word("/proc/kpageflags", head) >> 15 & 1))
		return 0;
	for (end = head + 1; word("/proc/kpageflags", end) >> 16 & 1; end++)
		;
	while (1ULL << order < end - head)
		order++;
	return order;
}

/* An area of two PMDs, aligned to one. */
static char *area(int advice)
{
	size_t pmd = page << pmd_order, size = 3 * pmd;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		check(0, "mmap: %s", strerror(errno));
		exit(1);
	}
	p = (char *)(((uintptr_t)p + pmd - 1) & ~(pmd - 1));
	if (advice && madvise(p, 2 * pmd, advice))
		check(0, "madvise %d: %s", advice, strerror(errno));
	return p;
}

/* enum anon_order_reason by number, and the mark of an event whose place is not known. */
static const char * const reason_names[] = {
	"not_considered", "chosen", "not_allowed", "vma_start", "vma_end", "pmd",
	"pte_overlap", "alloc_failed", "charge_failed", "raced", "uffd", "nohugepage",
	"thp_disabled", "size_never", "size_madvise", "top_never", "top_madvise", "policy",
	"within_size", "misaligned", "swap_entries",
};

/* What the last event that was asked for says of folio and path. */
static struct {
	unsigned long pfn;
	unsigned int allowed;
	char path[16], why[16];
} event;

/*
 * An event in short: "policy=P preferred=N chosen=N reasons=H:name,...,L:name",
 * from the highest order down. The rest of it goes to @event.
 */
static const char *in_short(const char *line)
{
	static char text[512];
	char policy[16];
	const char *at = strstr(line, "path="), *reason;
	int preferred, chosen, n, o, count = 0;
	unsigned int by_order[16];

	if (!at || sscanf(at, "path=%15s pfn=0x%lx policy=%15s allowed=0x%x preferred=%d chosen=%d why=%15s",
			  event.path, &event.pfn, policy, &event.allowed, &preferred, &chosen,
			  event.why) != 7)
		return "an event of another form";
	reason = strstr(at, "reasons={");
	for (reason += reason ? 9 : 0; reason && count < 16; count++) {
		if (sscanf(reason, "0x%x%n", &by_order[count], &n) != 1 ||
		    by_order[count] >= sizeof(reason_names) / sizeof(*reason_names))
			return "an event with other reasons";
		reason += n + 1;
	}
	n = snprintf(text, sizeof(text), "policy=%s preferred=%d chosen=%d reasons=", policy, preferred, chosen);
	for (o = 15; o >= 0; o--) {
		if (by_order[o])
			n += snprintf(text + n, sizeof(text) - n, "%d:%s,", o, reason_names[by_order[o]]);
	}
	text[n - 1] = 0;
	return text;
}

/* Fault @p in by a write; the last event for that address, in short. */
static const char *touch(char *p)
{
	char wanted[64], *at, *last = NULL;
	int fd;

	put(TRACE "trace", "");
	put(TRACE "events/anon_order/anon_order/enable", "1");
	/* Nothing but the fault is to fail, reading the trace allocates too. */
	fd = open("/proc/self/make-it-fail", O_WRONLY);
	if (may_fail && write(fd, "1", 1) != 1)
		check(0, "make-it-fail: %s", strerror(errno));
	*(volatile char *)p = 1;
	if (may_fail && pwrite(fd, "0", 1, 0) != 1)
		check(0, "make-it-fail: %s", strerror(errno));
	close(fd);
	put(TRACE "events/anon_order/anon_order/enable", "0");
	snprintf(wanted, sizeof(wanted), "address=0x%lx ", (uintptr_t)p & -page);
	for (at = get(TRACE "trace"); (at = strstr(at, wanted)); at++)
		last = at;
	return last ? in_short(last) : "no event";
}

/* The page frame mapped at @p; 0 if there is none. */
static unsigned long pfn_at(void *p)
{
	uint64_t pte = word("/proc/self/pagemap", (uintptr_t)p / page);

	return pte >> 63 ? pte & ((1ULL << 55) - 1) : 0;
}

/*
 * Fault @p and compare order, event and page frame; the format gives what follows
 * "policy=".
 */
static void expect(const char *what, char *p, int order, const char *fmt, ...)
{
	char wanted[512];
	const char *said = touch(p);
	int got = order_at(p), n = snprintf(wanted, sizeof(wanted), "policy=");
	unsigned long first = pfn_at((char *)((uintptr_t)p & -(page << order)));
	int same, right;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(wanted + n, sizeof(wanted) - n, fmt, ap);
	va_end(ap);
	same = got == order && !strcmp(said, wanted);
	/* What was chosen above order 0 was allowed. */
	right = event.pfn == first && !strcmp(event.path, "anon") && (!order || event.allowed >> order & 1);
	check(same && right, "%s: order %d, %s", what, got, said);
	if (!same)
		printf("# wanted order %d, %s\n", order, wanted);
	if (!right)
		printf("# wanted page frame %#lx on path anon, got %#lx on %s, allowed %#x\n",
		       first, event.pfn, event.path, event.allowed);
}

/* What is said of each order from the highest below a PMD to @order where its size is "never". */
static const char *never_down_to(int order)
{
	static char text[256];
	int n = 0, o;

	text[0] = 0;
	for (o = pmd_order - 1; o >= order; o--)
		n += snprintf(text + n, sizeof(text) - n, "%d:size_never,", o);
	return text;
}

/* "H:first,...,L:chosen": @reason at @from, then "chosen" at @to, the rest between by @mid. */
static char *reasons(int from, const char *first, int to, const char *mid)
{
	static char text[512];
	int n = 0, o;

	/* Order 1 is no order of THP. */
	for (o = from; o > to; o--)
		n += snprintf(text + n, sizeof(text) - n, "%d:%s,", o,
			      o == 1 ? "not_allowed" : o == from ? first : mid);
	snprintf(text + n, sizeof(text) - n, "%d:chosen", to);
	return text;
}

static void fail_orders_from(int order)
{
	put(FAIL "interval", "1");
	put(FAIL "times", "%d", -1);
	put(FAIL "verbose", "0");
	put(FAIL "ignore-gfp-highmem", "N");
	put(FAIL "ignore-gfp-wait", "N");
	put(FAIL "task-filter", "Y");
	put(FAIL "min-order", "%d", order);
	/* Last: until then it is for every task, and from order 1 on, which a kernel with its checks on needs for this. */
	put(FAIL "probability", "100");
	may_fail = 1;
}

static void fail_none(void)
{
	may_fail = 0;
	put(FAIL "probability", "0");
}

/* The order that takes over where @order does not: THP has no order 1. */
static int below(int order)
{
	return order - 1 >= 2 ? order - 1 : 0;
}
