/* A thread takes something away and goes back to its process. */

CASE(unmapped, "ok", "ok", "unmapped as Linux does it, and back")
{ st(P(3), A(3)); thread(7); st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); back(); thread(0); }
CASE(unmapped_no_tlbi, "S7", "S7", "no TLBI comes, and nothing is mapped there next")
{ st(P(3), A(3)); thread(7); st(P(3), 0); dsb(ish); back(); thread(0); }
CASE(unmapped_no_dsb, "S7", "S7", "the TLBI is not complete")
{ st(P(3), A(3)); thread(7); st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); back(); thread(0); }
CASE(unmapped_unordered, "S7", "S7", "no DSB is before the TLBI")
{ st(P(3), A(3)); thread(7); st(P(3), 0); tlbi(vale1is, at(3)); dsb(ish); back(); thread(0); }
CASE(unmapped_elsewhere, "S7", "S7", "the TLBI is for the page beside it")
{ st(P(3), A(3)); thread(7); st(P(3), 0); dsb(ishst); tlbi(vale1is, at(4)); dsb(ish); back(); thread(0); }
CASE(unmapped_locally, "ok", "S7", "the TLBI is for its own CPU alone")
{ st(P(3), A(3)); thread(7); st(P(3), 0); dsb(nshst); tlbi(vale1, at(3)); dsb(nsh); back(); thread(0); }
CASE(unmapped_table, "S7", "S7", "a table goes, and its walk caches keep it")
{ st(P(3), A(3)); thread(7); st(P(3), 0); st(LINK, 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); back(); thread(0); }
CASE(unmapped_by_other_thread, "ok", "ok", "another thread goes back before the TLBI")
{ st(P(3), A(3)); thread(7); st(P(3), 0); thread(8); back(); thread(7); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); back(); thread(0); }
CASE(unmapped_irq, "ok", "ok", "an interrupt returns to the kernel before the TLBI")
{ st(P(3), A(3)); thread(7); st(P(3), 0); back_to_kernel(); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); back(); thread(0); }
CASE(moved_thread, "-", "S7", "its thread goes on on another CPU")
{ st(P(3), A(3)); thread(7); st(P(3), 0); thread(0); ON(1, thread(7); back(); thread(0)); }
