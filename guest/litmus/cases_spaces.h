/* Address spaces and ASIDs: who can hold what. */

CASE(not_loaded, "ok", "-", "written while nobody walks it, and so in no TLB")
{ run_idle(); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(P(3), A(3)); st(P(3), 0); st(P(3), B(3)); run_p(); }
CASE(left_and_back, "S2", "S2", "an ASID that comes back has what it had")
{ st(P(3), A(3)); run_idle(); st(P(3), 0); dsb(ish); run_p(); st(P(3), B(3)); }
CASE(left_by_other, "-", "S2", "a CPU that has left the address space may hold it still")
{ st(P(3), A(3)); ON(1, run_idle()); st(P(3), 0); dsb(nshst); tlbi(vale1, at(3)); dsb(nsh); st(P(3), B(3)); }
CASE(new_asid, "ok", "-", "after a rollover nobody can hit what the old ASID has")
{ st(P(3), A(3)); st(P(3), 0); run_p6(); st(P(3), B(3)); }
CASE(flushed_by_other_process, "ok", "ok", "another process runs between TLBI and DSB")
{ st(P(3), A(3)); st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); run_q(); dsb(ish); run_p(); st(P(3), B(3)); }
CASE(left_aside1, "ok", "-", "by ASID while nobody walks it, with its DSB")
{ st(P(3), A(3)); run_idle(); st(P(3), 0); dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); st(P(3), B(3)); run_p(); }
CASE(left_aside1_no_dsb, "S3", "-", "by ASID while nobody walks it, without the DSB after")
{ st(P(3), A(3)); run_idle(); st(P(3), 0); dsb(ishst); tlbi(aside1is, ASID(5)); st(P(3), B(3)); run_p(); }
CASE(left_vmalle1_no_dsb, "S3", "-", "everything while nobody walks it, without the DSB after")
{ st(P(3), A(3)); run_idle(); st(P(3), 0); dsb(ishst); tlbi_all(vmalle1is); isb(); st(P(3), B(3)); run_p(); }
