/* Tables and blocks: another size, another table, and pages that are used again too soon. */

#define HAS_PAGE st(P(3), A(3))

CASE(table_to_block, "ok", "ok", "a table goes, VAE1IS for the page and the walk cache, a block comes")
{ HAS_PAGE; st(LINK, 0); dsb(ishst); tlbi(vae1is, at(3)); dsb(ish); st(LINK, BLOCK(PA_B)); }
CASE(table_to_block_asid, "ok", "ok", "the same with ASIDE1IS")
{ HAS_PAGE; st(LINK, 0); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(LINK, BLOCK(PA_B)); }
CASE(table_to_block_at_once, "S1", "S1", "a block in place of a live table")
{ HAS_PAGE; st(LINK, BLOCK(PA_B)); }
CASE(table_to_block_no_tlbi, "S2", "S2", "the same through an invalid word without TLBI")
{ HAS_PAGE; st(LINK, 0); dsb(ish); st(LINK, BLOCK(PA_B)); }
CASE(table_to_block_leaf, "S6", "S6", "VALE1IS leaves the walk cache as it is")
{ HAS_PAGE; st(LINK, 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(LINK, BLOCK(PA_B)); }
CASE(table_to_block_page_left, "S2", "S2", "VAE1IS of another page leaves the one that was mapped")
{ HAS_PAGE; st(LINK, 0); dsb(ishst); tlbi(vae1is, at(0)); dsb(ish); st(LINK, BLOCK(PA_B)); }
CASE(block_to_table, "ok", "ok", "a block goes, VALE1IS, a table comes")
{
	st(LINK, 0);
	dsb(ishst);
	tlbi(vae1is, at(0));
	dsb(ish);
	st(P(3), A(3));
	st(LINK, BLOCK(PA_A));
	st(LINK, 0);
	dsb(ishst);
	tlbi(vale1is, at(0));
	dsb(ish);
	st(LINK, TABLE(P(0)));
}
CASE(block_to_table_at_once, "S1", "S1", "a table in place of a live block")
{
	st(LINK, 0);
	dsb(ishst);
	tlbi(vae1is, at(0));
	dsb(ish);
	st(P(3), A(3));
	st(LINK, BLOCK(PA_A));
	st(LINK, TABLE(P(0)));
}
CASE(block_moves, "S1", "S1", "another output address of a live block")
{
	st(LINK, 0);
	dsb(ishst);
	tlbi(vae1is, at(0));
	dsb(ish);
	st(LINK, BLOCK(PA_A));
	st(LINK, BLOCK(PA_B));
}
CASE(block_ttl, "S6", "S6", "a block is flushed with a level hint of 3")
{
	st(LINK, 0);
	dsb(ishst);
	tlbi(vae1is, at(0));
	dsb(ish);
	st(LINK, BLOCK(PA_A));
	st(LINK, 0);
	dsb(ishst);
	tlbi(vale1is, at(0) | ttl(3));
	dsb(ish);
	st(LINK, BLOCK(PA_B));
}
CASE(table_exchanged, "ok", "ok", "another table after a right break")
{ HAS_PAGE; st(SPARE(3), B(3)); st(LINK, 0); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(LINK, TABLE(SPARE(0))); }
CASE(table_exchanged_no_tlbi, "S2", "S2", "another table through an invalid word without TLBI")
{ HAS_PAGE; st(SPARE(3), B(3)); st(LINK, 0); dsb(ish); st(LINK, TABLE(SPARE(0))); }
CASE(table_linked_again, "ok", "ok", "the same table is linked again, as mremap moves one")
{ HAS_PAGE; st(LINK, 0); st(LINK, TABLE(P(0))); }

CASE(upper_page, "ok", "ok", "the kernel's half: a global page, VAALE1IS")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); tlbi(vaale1is, at_k(3)); dsb(ish); st(K(3), B(3) & ~NG); }
CASE(upper_range, "ok", "ok", "the kernel's half: RVAALE1IS")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); tlbi(rvaale1is, range_k(0, 7)); dsb(ish); st(K(3), B(3) & ~NG); }
CASE(upper_any_asid, "ok", "ok", "the kernel's half: a TLBI by VA of some ASID reaches what is global")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); tlbi(vale1is, at_k(3) | ASID(7)); dsb(ish); st(K(3), B(3) & ~NG); }
CASE(upper_no_break, "S1", "S1", "the kernel's half: another output address at once")
{ st(K(3), A(3) & ~NG); st(K(3), B(3) & ~NG); }
CASE(upper_no_tlbi, "S2", "S2", "the kernel's half: no TLBI")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ish); st(K(3), B(3) & ~NG); }
CASE(upper_by_asid, "S2", "S2", "the kernel's half: ASIDE1IS does not reach what is global")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(K(3), B(3) & ~NG); }
CASE(upper_local, "ok", "S2", "the kernel's half: VMALLE1 of the own CPU alone")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); tlbi_all(vmalle1); dsb(nsh); st(K(3), B(3) & ~NG); }
CASE(upper_no_dsb, "S3", "S3", "the kernel's half: no DSB after the TLBI, as map_kernel()")
{ st(K(3), A(3) & ~NG); st(K(3), 0); dsb(ishst); isb(); tlbi_all(vmalle1is); isb(); st(K(3), (A(3) & ~NG) | CONT); }

/* Pages that are something else too soon. The other table is linked elsewhere. */
#define OTHER_LINK (&p_l2[MOST_CASES + slot])
#define AS_PAGE(at) (PAGE + pa(at))

CASE(table_written, "S5", "S5", "a table is taken away and its page written to before the TLBI")
{ HAS_PAGE; st(LINK, 0); dsb(ish); st(P(7), 0x1234); dsb(ish); tlbi(aside1is, ASID(5)); dsb(ish); }
CASE(table_written_late, "ok", "ok", "the same behind the TLBI")
{ HAS_PAGE; st(LINK, 0); dsb(ish); tlbi(vae1is, at(3)); dsb(ish); st(P(7), 0x1234); }
CASE(table_written_no_dsb, "S5", "S5", "the same behind the TLBI and before its DSB")
{ HAS_PAGE; st(LINK, 0); dsb(ish); tlbi(vae1is, at(3)); st(P(7), 0x1234); }
CASE(table_written_leaf, "S5", "S5", "the same behind a TLBI that leaves the walk cache out")
{ HAS_PAGE; st(LINK, 0); dsb(ish); tlbi(vale1is, at(3)); dsb(ish); st(P(7), 0x1234); }
CASE(table_cleared, "ok", "ok", "a table is taken away, and its words cleared before the TLBI")
{ HAS_PAGE; st(LINK, 0); st(P(3), 0); dsb(ish); tlbi(aside1is, ASID(5)); dsb(ish); }
CASE(table_mapped, "S5", "S5", "a table is taken away and its page mapped before the TLBI")
{ HAS_PAGE; st(OTHER_LINK, TABLE(SPARE(0))); st(LINK, 0); dsb(ish); st(SPARE(3), AS_PAGE(P(0))); }
CASE(table_mapped_late, "ok", "ok", "the same behind the TLBI")
{ HAS_PAGE; st(OTHER_LINK, TABLE(SPARE(0))); st(LINK, 0); dsb(ish); tlbi(vae1is, at(3)); dsb(ish); st(SPARE(3), AS_PAGE(P(0))); }
CASE(page_as_table, "S5", "S5", "a page is taken away and is a table before the TLBI")
{ st(P(3), AS_PAGE(SPARE(0))); st(P(3), 0); dsb(ish); st(OTHER_LINK, TABLE(SPARE(0))); }
CASE(page_as_table_late, "ok", "ok", "the same behind the TLBI")
{ st(P(3), AS_PAGE(SPARE(0))); st(P(3), 0); dsb(ish); tlbi(vale1is, at(3)); dsb(ish); st(OTHER_LINK, TABLE(SPARE(0))); }
CASE(page_elsewhere, "ok", "ok", "a page goes and comes at another VA before the TLBI, as mremap does it")
{ st(P(3), A(3)); st(P(3), 0); st(P(4), A(3)); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); }
