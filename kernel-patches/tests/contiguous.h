/* SPDX-License-Identifier: GPL-2.0-only */
// What becomes of contiguous blocks, by the kernel's own counts.
/* How often something was done with a contiguous block. */
static long blocks(const char *what)
{
	size_t n = strlen(what);
	char *at = get(BLOCKS);

	for (; *at; at += strcspn(at, "\n") + 1) {
		if (!strncmp(at, what, n) && at[n] == ' ')
			return atol(at + n);
	}
	return -1;
}

/* That @times of it came of what was done since there were @before. */
static void came(const char *what, long before, long times)
{
	long now = blocks(what);

	check(now - before == times, "%s: %ld times, wanted %ld", what, now - before, times);
}

/* What becomes of contiguous blocks; hinted folios fill one each. */
static void contiguous(void)
{
	size_t block = page << hinted;
	char *p = area(MADV_HUGEPAGE), *q = area(MADV_HUGEPAGE);
	long set, fold, unfold, hole, attrs, part;

	check(!strcmp(get(DIR "contpte"), "0\n"), "blocks are not counted at boot");
	put(DIR "contpte", "1");
	policy("baseline");
	touch(q);
	policy("variable");
	set = blocks("set");
	part = blocks("refused_part");
	p[0] = p[block] = p[2 * block] = 1;
	came("set", set, 3);
	q[block - page] = 1;
	came("refused_part", part, 1);

	unfold = blocks("unfold");
	madvise(p + page, page, MADV_DONTNEED);
	came("unfold", unfold, 1);
	/* Whatever of zap_pte_range() and its caller is inlined. */
	check(strstr(get(BLOCKS), " zap_") || strstr(get(BLOCKS), " unmap_page_range+"),
	      "and who wanted it is named");
	hole = blocks("refused_hole");
	mprotect(p, block, PROT_READ);
	came("refused_hole", hole, 1);

	attrs = blocks("refused_attrs");
	mprotect(p + 2 * block - page, page, PROT_READ);
	came("unfold", unfold, 2);
	came("refused_attrs", attrs, 1);
	fold = blocks("fold");
	mprotect(p + 2 * block - page, page, PROT_READ | PROT_WRITE);
	came("fold", fold, 1);

	put(DIR "contpte", "0");
	munmap(p + 2 * block, page);
	came("unfold", unfold, 2);
	put(DIR "contpte", "1");
	check(!blocks("unfold") && !strstr(get(BLOCKS), "cpu"), "to count anew is to begin at 0");
}
