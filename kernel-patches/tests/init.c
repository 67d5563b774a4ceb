// SPDX-License-Identifier: GPL-2.0-only
// The first and only process of a guest that checks what the patches promise: policies, reasons, fault injection.
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "guest.h"
#include "contiguous.h"
#include "costs.h"
#include "races.h"

static void knob(void)
{
	check(!strcmp(get(DIR "record"), "0\n"), "nothing is recorded at boot");
	*(volatile char *)area(0) = 1;
	check(!*get(COUNTS), "nor counted");
	check(try_write(DIR "record", "2") == EINVAL, "to record is yes or no");
	put(DIR "record", "1");
	check(!strcmp(get(DIR "record"), "1\n"), "recording is switched on");
	check(!strcmp(get(DIR "policy"), "sysfs baseline simple [variable] retry adaptive\n"),
	      "the policy at boot is variable: %s", get(DIR "policy"));
	check(try_write(THP "anon_order_policy", "sysfs") == ENOENT, "and has no second file");
	policy("retry");
	check(!strcmp(get(DIR "policy"), "sysfs baseline simple variable [retry] adaptive\n"),
	      "the control shows the policy chosen");
	check(try_write(DIR "policy", "generous") == EINVAL, "an unknown policy is refused");
	check(!strcmp(get(DIR "policy"), "sysfs baseline simple variable [retry] adaptive\n"),
	      "and leaves the one in force");
}

/* How often a decision was made, by the kernel's own table. */
static long count_of(const char *decision)
{
	size_t n = strlen(decision);
	char *at = get(COUNTS);

	for (; *at; at += strcspn(at, "\n") + 1) {
		if (!strncmp(at, decision, n) && at[n] == ' ')
			return atol(at + n);
	}
	return 0;
}

/* More faults than a ring has records, and each of them counted once. */
static void counted(void)
{
	char raised[64], failed_one[64], refused[64];
	size_t block = page << hinted, pages = 1000, i;
	long before, after;
	char *p;

	snprintf(raised, sizeof(raised), "variable anon %d chosen", hinted);
	snprintf(failed_one, sizeof(failed_one), "retry anon %d alloc_failed", below(hinted));
	snprintf(refused, sizeof(refused), "simple anon 0 vma_start");

	policy("baseline");
	/* What it takes to read them is faulted in now. */
	count_of("baseline anon 0 chosen");
	before = count_of("baseline anon 0 chosen");
	p = area(0);
	for (i = 0; i < pages; i++)
		p[i * page] = 1;
	after = count_of("baseline anon 0 chosen");
	check(after - before == (long)pages, "%zu single pages are counted: %ld", pages, after - before);

	policy("variable");
	p = area(MADV_HUGEPAGE);
	before = count_of(raised);
	p[0] = p[block] = p[block + page] = 1;
	check(count_of(raised) - before == 2, "so are two blocks, once each");

	policy("retry");
	p = area(MADV_HUGEPAGE);
	before = count_of(failed_one);
	fail_orders_from(hinted);
	touch(p);
	fail_none();
	check(count_of(failed_one) - before == 1, "and what was allocated instead of one: %s", failed_one);

	policy("simple");
	p = area(MADV_HUGEPAGE) + block;
	munmap(p - block, block + page);
	before = count_of(refused);
	touch(p + page);
	check(count_of(refused) - before == 1, "and what did not fit: %s", refused);

	put(DIR "record", "0");
	before = count_of(refused);
	p[2 * page] = 1;
	check(before > 0 && count_of(refused) == before, "what is not recorded is not counted");
	put(DIR "record", "1");
	check(!count_of(refused), "and to record anew is to count anew");
}

static void fits(void)
{
	static const char * const names[] = { "simple", "variable", "retry" };
	size_t block = page << hinted, i;
	int order, lower = below(hinted);
	char *p;

	policy("baseline");
	expect("baseline, hinted", area(MADV_HUGEPAGE) + block, 0,
	       "baseline preferred=0 chosen=0 reasons=0:chosen");
	for (i = 0; i < 3; i++) {
		policy(names[i]);
		expect("hinted", area(MADV_HUGEPAGE) + block + page, hinted,
		       "%s preferred=%d chosen=%d reasons=%d:chosen", names[i], hinted, hinted, hinted);
		expect("unhinted", area(0) + block + page, unhinted,
		       "%s preferred=%d chosen=%d reasons=%d:chosen", names[i], unhinted, unhinted, unhinted);
		expect("MADV_NOHUGEPAGE", area(MADV_NOHUGEPAGE) + block, 0,
		       "%s preferred=%d chosen=0 reasons=%s", names[i], unhinted,
		       reasons(unhinted, "nohugepage", 0, "nohugepage"));

		/* A page already there: the upper half of the block is free. */
		p = area(MADV_HUGEPAGE);
		policy("baseline");
		touch(p);
		policy(names[i]);
		order = i ? lower : 0;
		expect("beside a page", p + block - page, order,
		       "%s preferred=%d chosen=%d reasons=%s", names[i], hinted, order,
		       reasons(hinted, "pte_overlap", order, "policy"));
		check(order_at(p) == 0 && order_at(p + block) == -1, "and nothing else was touched");

		p = area(MADV_HUGEPAGE) + block;
		munmap(p - block, block + page);
		expect("across the start", p + block - page, order,
		       "%s preferred=%d chosen=%d reasons=%s", names[i], hinted, order,
		       reasons(hinted, "vma_start", order, "policy"));
		p = area(MADV_HUGEPAGE) + block;
		munmap(p + block - page, block + page);
		expect("across the end", p, order,
		       "%s preferred=%d chosen=%d reasons=%s", names[i], hinted, order,
		       reasons(hinted, "vma_end", order, "policy"));
	}

	policy("variable");
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	p = area(0);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	madvise(p, page << pmd_order, MADV_HUGEPAGE);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	expect("PR_SET_THP_DISABLE", p, 0, "variable preferred=%d chosen=0 reasons=%s", hinted,
	       reasons(hinted, "thp_disabled", 0, "thp_disabled"));
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);

	/* Only the last pages of the block are free, one fault after the other. */
	p = area(MADV_HUGEPAGE);
	policy("baseline");
	touch(p + (block >> 1) - page);
	policy("variable");
	expect("below the middle", p, below(hinted - 1), "variable preferred=%d chosen=%d reasons=%s",
	       hinted, below(hinted - 1), reasons(hinted, "pte_overlap", below(hinted - 1), "pte_overlap"));
}

static void allocation_fails(void)
{
	char *p = area(MADV_HUGEPAGE), *q = area(MADV_HUGEPAGE), *r = area(MADV_HUGEPAGE);
	int lower = below(hinted);

	policy("variable");
	fail_orders_from(hinted);
	expect("variable, allocation fails", p, 0, "variable preferred=%d chosen=0 reasons=%s", hinted,
	       reasons(hinted, "alloc_failed", 0, "policy"));
	policy("simple");
	expect("simple, allocation fails", q, 0, "simple preferred=%d chosen=0 reasons=%s", hinted,
	       reasons(hinted, "alloc_failed", 0, "policy"));
	policy("retry");
	expect("retry, allocation fails", r, lower, "retry preferred=%d chosen=%d reasons=%s", hinted, lower,
	       reasons(hinted, "alloc_failed", lower, "policy"));
	fail_orders_from(2);
	expect("retry, all orders fail", area(MADV_HUGEPAGE), 0, "retry preferred=%d chosen=0 reasons=%s",
	       hinted, reasons(hinted, "alloc_failed", 0, "alloc_failed"));
	fail_none();
	expect("retry, none fails", area(MADV_HUGEPAGE), hinted, "retry preferred=%d chosen=%d reasons=%d:chosen",
	       hinted, hinted, hinted);
}

/*
 * A child in a cgroup that has room for a few pages, not for a block. The charge
 * is batched, so that the first blocks may still fit in what is paid for already.
 */
static void charge_fails(void)
{
	size_t block = page << hinted;
	char *p = area(MADV_HUGEPAGE), wanted[64], c;
	int go[2], done[2], i, seen = 0;
	char *at;
	pid_t pid;

	mkdir("/cg", 0755);
	if (mount("cgroup2", "/cg", "cgroup2", 0, NULL) || pipe(go) || pipe(done)) {
		check(0, "mount cgroup2: %s", strerror(errno));
		return;
	}
	put("/cg/cgroup.subtree_control", "+memory");
	mkdir("/cg/small", 0755);
	policy("variable");
	pid = fork();
	if (!pid) {
		for (i = 0; i < 8 && read(go[0], &c, 1) == 1; i++) {
			if (i)
				p[(i - 1) * block] = 1;
			if (write(done[1], &c, 1) != 1)
				break;
		}
		_exit(0);
	}
	put("/cg/small/cgroup.procs", "%d", pid);
	put(TRACE "trace", "");
	put(TRACE "events/anon_order/anon_order/enable", "1");
	for (i = 0; i < 8; i++) {
		if (write(go[1], "", 1) != 1 || read(done[0], &c, 1) != 1)
			break;
		if (!i)
			put("/cg/small/memory.max", "%ld",
			    atol(get("/cg/small/memory.current")) + 10 * (long)page);
	}
	put(TRACE "events/anon_order/anon_order/enable", "0");
	check(i == 8, "the child lived through it");
	snprintf(wanted, sizeof(wanted), "preferred=%d chosen=0 why=charge_failed ", hinted);
	at = strstr(get(TRACE "trace"), wanted);
	seen = at != NULL;
	check(seen, "the memory cgroup refuses a block: %.*s", at ? (int)strcspn(at, "\n") : 8,
	      at ? at : "no event");
	waitpid(pid, NULL, 0);
}

static void userfault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	char *p = area(MADV_HUGEPAGE);

	reg.range.start = (uintptr_t)p;
	reg.range.len = page << pmd_order;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg)) {
		check(0, "userfaultfd: %s", strerror(errno));
		return;
	}
	policy("retry");
	expect("userfaultfd", p, 0, "retry preferred=%d chosen=0 reasons=%s", hinted,
	       reasons(hinted, "uffd", 0, "uffd"));
	close(fd);
}

/* Order 4 does what the top-level control says. */
static void inherited(void)
{
	const char *rest = "3:size_never,2:size_never,1:not_allowed,0:chosen";

	size_enabled(4, "inherit");
	put(THP "enabled", "never");
	expect("top level never", area(MADV_HUGEPAGE), 0, "sysfs preferred=0 chosen=0 reasons=%s4:top_never,%s",
	       never_down_to(5), rest);
	put(THP "enabled", "madvise");
	expect("top level madvise", area(0), 0, "sysfs preferred=0 chosen=0 reasons=%s4:top_madvise,%s",
	       never_down_to(5), rest);
	expect("top level madvise, hinted", area(MADV_HUGEPAGE), 4, "sysfs preferred=4 chosen=4 reasons=%s4:chosen",
	       never_down_to(5));
	expect("sysfs, MADV_NOHUGEPAGE", area(MADV_NOHUGEPAGE), 0,
	       "sysfs preferred=0 chosen=0 reasons=%s", reasons(pmd_order - 1, "nohugepage", 0, "nohugepage"));
}

static void as_before(void)
{
	size_t block = page << 4;
	int o;
	long before, fell;
	char *p;

	policy("sysfs");
	expect("sysfs, nothing enabled", area(MADV_HUGEPAGE), 0, "sysfs preferred=0 chosen=0 reasons=%s2:size_never,1:not_allowed,0:chosen",
	       never_down_to(3));
	size_enabled(4, "always");
	size_enabled(2, "madvise");
	expect("sysfs, order 4 always", area(0), 4, "sysfs preferred=4 chosen=4 reasons=%s4:chosen",
	       never_down_to(5));
	p = area(MADV_HUGEPAGE);
	policy("baseline");
	touch(p);
	policy("sysfs");
	expect("sysfs, next enabled", p + block - page, 2,
	       "sysfs preferred=4 chosen=2 reasons=%s4:pte_overlap,3:size_never,2:chosen", never_down_to(5));
	p = area(0);
	policy("baseline");
	touch(p);
	policy("sysfs");
	expect("sysfs, order 2 not enabled here", p + block - page, 0,
	       "sysfs preferred=4 chosen=0 reasons=%s4:pte_overlap,3:size_never,2:size_madvise,1:not_allowed,0:chosen",
	       never_down_to(5));
	p = area(MADV_HUGEPAGE);
	fell = stat_of(4, "anon_fault_fallback");
	before = stat_of(2, "anon_fault_alloc");
	fail_orders_from(3);
	expect("sysfs retries", p, 2, "sysfs preferred=4 chosen=2 reasons=%s4:alloc_failed,3:size_never,2:chosen",
	       never_down_to(5));
	fail_none();
	check(stat_of(4, "anon_fault_fallback") == fell + 1 && stat_of(2, "anon_fault_alloc") == before + 1,
	      "and the statistics count it");
	size_enabled(2, "never");
	inherited();
	size_enabled(4, "never");

	policy("variable");
	before = stat_of(hinted, "anon_fault_alloc");
	for (o = 0; o < 4; o++)
		touch(area(MADV_HUGEPAGE));
	check(stat_of(hinted, "anon_fault_alloc") == before + 4, "folios of a policy are counted by size");

	/* PMD-sized THP keep their own control, whatever the policy. */
	if ((page << pmd_order) <= 64UL << 20) {
		size_enabled(pmd_order, "madvise");
		policy("baseline");
		p = area(MADV_HUGEPAGE);
		expect("PMD-sized THP are as before", p, pmd_order, "sysfs preferred=%d chosen=%d reasons=%d:chosen",
		       pmd_order, pmd_order, pmd_order);
		size_enabled(pmd_order, "never");
	}
	policy("sysfs");
	put(TRACE "trace", "");
	put(TRACE "events/anon_order/anon_order/enable", "1");
	p = area(0);
	(void)*(volatile char *)p;
	put(TRACE "events/anon_order/anon_order/enable", "0");
	{
		char wanted[64];

		snprintf(wanted, sizeof(wanted), "address=0x%lx ", (uintptr_t)p);
		check(!strstr(get(TRACE "trace"), wanted), "a read that maps the zero page is not recorded");
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	page = sysconf(_SC_PAGESIZE);
	page_shift = __builtin_ctzl(page);
	pmd_order = page_shift - 3;
	hinted = page == 4096 ? 4 : page == 16384 ? 7 : 5;
	unhinted = page_shift < 16 ? 16 - page_shift : 0;
	if (unhinted > hinted)
		unhinted = hinted;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	printf("# page size %zu, PMD order %d\n", page, pmd_order);

	size_enabled(pmd_order, "never");
	if (strstr(get("/proc/cmdline"), "costs")) {
		costs();
		write_costs();
		reboot(RB_POWER_OFF);
	}
	knob();
	counted();
	contiguous();
	fits();
	allocation_fails();
	userfault();
	as_before();
	charge_fails();
	races();
	write_races();
	printf("1..%d\n# %d failed\n", number, failed);
	if (strstr(get("/proc/cmdline"), "stay")) {
		printf("# staying\n");
		pause();
	}
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
