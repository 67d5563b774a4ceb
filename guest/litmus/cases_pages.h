/* Pages: break-before-make of one descriptor in all the ways in which it is right, and each of its parts left out or weakened. */

/* The page at VA 3 is A, and then not. */
#define BROKEN st(P(3), A(3)); st(P(3), 0)

CASE(page_vae1is, "ok", "ok", "break, DSB ISHST, TLBI VAE1IS, DSB ISH, make")
{ BROKEN; dsb(ishst); tlbi(vae1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(page_vale1is, "ok", "ok", "the same with VALE1IS and an ISB")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); isb(); st(P(3), B(3)); }
CASE(page_vaae1is, "ok", "ok", "the same with VAAE1IS, of any ASID")
{ BROKEN; dsb(ish); tlbi(vaae1is, at(3) & ~ASID(0xffff)); dsb(ish); st(P(3), B(3)); }
CASE(page_vaale1os, "ok", "ok", "the same with VAALE1OS and DSB SY")
{ BROKEN; dsb(sy); tlbi(vaale1os, at(3)); dsb(sy); st(P(3), B(3)); }
CASE(page_aside1is, "ok", "ok", "the same with ASIDE1IS")
{ BROKEN; dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(P(3), B(3)); }
CASE(page_vmalle1is, "ok", "ok", "the same with VMALLE1IS")
{ BROKEN; dsb(ishst); tlbi_all(vmalle1is); dsb(ish); st(P(3), B(3)); }
CASE(page_ttl, "ok", "ok", "the same with a level hint of 3, the old word a swap entry")
{ st(P(3), A(3)); st(P(3), SWAP); dsb(ishst); tlbi(vale1is, at(3) | ttl(3)); dsb(ish); st(P(3), B(3)); }
CASE(page_rvale1is, "ok", "ok", "the same with a range of 16 pages, RVALE1IS")
{ BROKEN; dsb(ishst); tlbi(rvale1is, range(0, 7, 0)); dsb(ish); st(P(3), B(3)); }
CASE(page_rvae1is, "ok", "ok", "the same with a range of 4 pages and a level hint, RVAE1IS")
{ BROKEN; dsb(ishst); tlbi(rvae1is, range(0, 1, 3)); dsb(ish); st(P(3), B(3)); }
CASE(page_twice, "ok", "ok", "a second TLBI that nothing orders does not undo the first")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); tlbi(vale1is, at(3)); st(P(3), B(3)); }
CASE(page_lazy, "ok", "ok", "one TLBI for several breaks, with stores elsewhere in between")
{ st(P(5), A(5)); BROKEN; st(P(4), A(4)); st(P(5), 0); st(P(6), B(6)); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(P(3), B(3)); st(P(5), B(5)); }
CASE(page_local, "ok", "S2", "TLBI VALE1 of the own CPU alone, DSB NSH")
{ BROKEN; dsb(nshst); tlbi(vale1, at(3)); dsb(nsh); st(P(3), B(3)); }
CASE(page_local_all, "ok", "S2", "TLBI VMALLE1 of the own CPU alone")
{ BROKEN; dsb(ishst); tlbi_all(vmalle1); dsb(ish); st(P(3), B(3)); }
CASE(page_by_two, "-", "ok", "one CPU breaks and flushes, another makes")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); ON(1, st(P(3), B(3))); }
CASE(page_other_flushes, "-", "ok", "one CPU breaks, another orders and flushes")
{ BROKEN; ON(1, dsb(ishst); tlbi(vale1is, at(3)); dsb(ish)); st(P(3), B(3)); }
CASE(page_each, "-", "ok", "each CPU flushes for itself")
{
	BROKEN;
	dsb(ishst);
	tlbi(vale1, at(3));
	dsb(nsh);
	for (int cpu = 1; cpu < cpus; cpu++)
		ON(cpu, dsb(ishst); tlbi(vale1, at(3)); dsb(nsh));
	st(P(3), B(3));
}
CASE(page_all_but_one, "-", "S2", "each CPU but the last flushes for itself")
{
	BROKEN;
	dsb(ishst);
	for (int cpu = 1; cpu < cpus; cpu++)
		ON(cpu, dsb(ishst); tlbi(vale1, at(3)); dsb(nsh));
	st(P(3), B(3));
}

CASE(no_break, "S1", "S1", "another output address at once")
{ st(P(3), A(3)); st(P(3), B(3)); }
CASE(no_break_device, "S1", "S1", "another memory type at once")
{ st(P(3), A(3)); st(P(3), A(3) | DEVICE); }
CASE(no_break_global, "S1", "S1", "global at once")
{ st(P(3), A(3)); st(P(3), A(3) & ~NG); }
CASE(no_break_cont, "S1", "S1", "the Contiguous bit at once")
{ st(P(3), A(3)); st(P(3), A(3) | CONT); }
CASE(no_break_stlr, "S1", "S1", "another output address by STLR")
{ st(P(3), A(3)); stlr(P(3), B(3)); }
CASE(no_break_stp, "S1", "S1", "another output address by STP")
{ st(P(2), A(2)); stp(P(2), B(2), 0); }
CASE(no_break_half, "S1", "S1", "another output address by a store of 32 bits")
{ st(P(3), A(3)); stw(P(3), (u32)B(3)); }
CASE(no_break_swp, "S1", "S1", "another output address by SWP")
{ st(P(3), A(3)); swp(P(3), B(3)); }
CASE(no_break_cas, "S1", "S1", "another output address by CAS")
{ st(P(3), A(3)); cas(P(3), A(3), B(3)); }
CASE(no_break_stxr, "S1", "S1", "another output address by STXR")
{ st(P(3), A(3)); stxr(P(3), B(3)); }
CASE(no_break_ldset, "S1", "S1", "the Contiguous bit by LDSET")
{ st(P(3), A(3)); ldset(P(3), CONT); }
CASE(cas_that_fails, "ok", "ok", "a CAS that compares unequal stores nothing new")
{ st(P(3), A(3)); cas(P(3), A(4), B(3)); }
CASE(break_by_ldclr, "ok", "ok", "LDCLR takes the valid bit away, STP makes")
{ st(P(2), A(2)); ldclr(P(2), 1); dsb(ishst); tlbi(vale1is, at(2)); dsb(ish); stp(P(2), B(2), 0); }
CASE(break_by_swp, "S2", "S2", "SWP takes the page away, no TLBI, STLR makes")
{ st(P(3), A(3)); swp(P(3), 0); dsb(ish); stlr(P(3), B(3)); }
CASE(break_by_half, "S2", "S2", "a store of 32 bits takes the page away, no TLBI")
{ st(P(3), A(3)); stw(P(3), 0); dsb(ish); st(P(3), B(3)); }

CASE(no_tlbi, "S2", "S2", "break and make, no TLBI")
{ BROKEN; st(P(3), B(3)); }
CASE(no_tlbi_dsb, "S2", "S2", "the barriers alone")
{ BROKEN; dsb(ishst); dsb(ish); isb(); st(P(3), B(3)); }
CASE(tlbi_next_page, "S2", "S2", "a TLBI of the page beside")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(4)); dsb(ish); st(P(3), B(3)); }
CASE(tlbi_other_asid, "S2", "S2", "a TLBI of another ASID")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3) ^ ASID(5 ^ 6)); dsb(ish); st(P(3), B(3)); }
CASE(aside1_other_asid, "S2", "S2", "ASIDE1IS of another ASID")
{ BROKEN; dsb(ishst); tlbi(aside1is, ASID(6)); dsb(ish); st(P(3), B(3)); }
CASE(tlbi_too_early, "S2", "S2", "the TLBI before the break")
{ st(P(3), A(3)); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), 0); dsb(ish); st(P(3), B(3)); }
CASE(break_of_another, "S1", "S1", "after a right break the old page is made again, and then changed at once")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), A(3)); st(P(3), B(3)); }
CASE(make_by_other, "-", "S2", "one CPU breaks, another makes, no TLBI")
{ BROKEN; dsb(ish); ON(1, st(P(3), B(3))); }

CASE(no_dsb_before, "S3", "S3", "no DSB between break and TLBI")
{ BROKEN; tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(dsb_too_early, "S3", "S3", "the DSB before the break")
{ st(P(3), A(3)); dsb(ishst); st(P(3), 0); tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(dsb_of_loads, "S3", "S3", "DSB ISHLD between break and TLBI")
{ BROKEN; dsb(ishld); tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(dmb_before, "S3", "S3", "DMB ISH between break and TLBI")
{ BROKEN; asm volatile("dmb ish" ::: "memory"); tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(dsb_nsh_before, "S3", "S3", "DSB NSHST between break and a TLBI of all CPUs")
{ BROKEN; dsb(nshst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3)); }
CASE(no_dsb_after, "S3", "S3", "no DSB after the TLBI")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); st(P(3), B(3)); }
CASE(isb_after, "S3", "S3", "an ISB after the TLBI and no DSB")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); isb(); st(P(3), B(3)); }
CASE(dsb_nsh_after, "S3", "S3", "DSB NSH after a TLBI of all CPUs")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(nsh); st(P(3), B(3)); }
CASE(dsb_of_loads_after, "S3", "S3", "DSB ISHLD after the TLBI")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ishld); st(P(3), B(3)); }
CASE(dsb_of_stores_after, "S3", "S3", "DSB ISHST after the TLBI, which waits for stores alone")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); dsb(ishst); st(P(3), B(3)); }
CASE(dsb_of_another, "-", "S3", "another CPU's DSB after the TLBI")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3)); ON(1, dsb(ish); st(P(3), B(3))); }
CASE(local_no_dsb, "S3", "S2", "a local TLBI without a DSB after it")
{ BROKEN; dsb(nshst); tlbi(vale1, at(3)); st(P(3), B(3)); }

CASE(ttl_wrong, "S6", "S6", "a level hint of 2 for a page")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3) | ttl(2)); dsb(ish); st(P(3), B(3)); }
CASE(ttl_other_granule, "S6", "S6", "a hint of level 3 for the 64K granule")
{ BROKEN; dsb(ishst); tlbi(vale1is, at(3) | 3ul << 46 | 3ul << 44); dsb(ish); st(P(3), B(3)); }
CASE(range_behind, "S6", "S6", "a range that begins behind the page")
{ BROKEN; dsb(ishst); tlbi(rvale1is, range(4, 7, 0)); dsb(ish); st(P(3), B(3)); }
CASE(range_before, "S6", "S6", "a range that ends before it")
{ BROKEN; dsb(ishst); tlbi(rvale1is, range(0, 0, 0)); dsb(ish); st(P(3), B(3)); }
CASE(range_ttl, "S6", "S6", "a range with a level hint of 2")
{ BROKEN; dsb(ishst); tlbi(rvale1is, range(0, 7, 2)); dsb(ish); st(P(3), B(3)); }
CASE(range_granule, "S6", "S6", "a range with TG of the 16K granule")
{ BROKEN; dsb(ishst); tlbi(rvale1is, (range(0, 7, 0) & ~(3ul << 46)) | 2ul << 46); dsb(ish); st(P(3), B(3)); }

CASE(rights, "ok", "ok", "rights, age, dirty state and software's bits change with no break")
{ st(P(3), A(3)); st(P(3), A(3) | RO); st(P(3), A(3)); st(P(3), A(3) & ~AF); st(P(3), A(3)); st(P(3), A(3) | SOFTWARE); st(P(3), A(3) | DBM | RO); }
CASE(rights_through_invalid, "ok", "ok", "rights change through an invalid word, no TLBI yet, as mprotect")
{ st(P(3), A(3)); st(P(3), 0); st(P(3), A(3) | RO); st(P(3), 0); st(P(3), A(3)); }
CASE(from_global, "ok", "ok", "from global to not global")
{ st(P(3), A(3) & ~NG); st(P(3), A(3)); }
CASE(hardware_dirty, "ok", "ok", "the PE sets AF and the dirty state, and then a right break")
{
	st(P(3), (A(3) & ~AF) | DBM | RO);
	dsb(ishst);
	isb();
	*(volatile u64 *)VA(3) = 1;
	st(P(3), 0);
	dsb(ishst);
	tlbi(vale1is, at(3));
	dsb(ish);
	st(P(3), B(3));
}
CASE(hardware_dirty_wrong, "S2", "S2", "the same without the TLBI")
{
	st(P(3), (A(3) & ~AF) | DBM | RO);
	dsb(ishst);
	isb();
	*(volatile u64 *)VA(3) = 1;
	st(P(3), 0);
	dsb(ish);
	st(P(3), B(3));
}
CASE(old_page_of_hardware, "S1", "S1", "AF is 0, and the PE may have set it")
{ st(P(3), A(3) & ~AF); st(P(3), B(3) & ~AF); }
CASE(never_valid, "ok", "ok", "words that were never valid")
{ st(P(3), SWAP); st(P(3), 0); st(P(3), SWAP); st(P(3), B(3)); }
