/* Contiguous groups: folded, unfolded, in part. */

#define FOLDED ALL(i) st(P(i), A(i) | CONT)
#define UNFOLDED ALL(i) st(P(i), A(i))
#define CLEARED ALL(i) st(P(i), 0)

CASE(fold, "ok", "ok", "clear all, flush the range, write all with the Contiguous bit")
{ UNFOLDED; CLEARED; dsb(ishst); tlbi(rvale1is, range(0, 7, 3)); dsb(ish); FOLDED; }
CASE(fold_page_by_page, "ok", "ok", "the same with a TLBI for each page")
{ UNFOLDED; CLEARED; dsb(ishst); ALL(i) tlbi(vale1is, at(i)); dsb(ish); FOLDED; }
CASE(fold_at_once, "S1 S4", "S1 S4", "the Contiguous bit is written over live pages")
{ UNFOLDED; FOLDED; }
CASE(fold_no_tlbi, "S2", "S2", "clear all, write all with the bit, the TLBI at the end, as one batch")
{ UNFOLDED; CLEARED; FOLDED; dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); }
CASE(fold_one_tlbi, "S2", "S2", "a TLBI of the first page alone")
{ UNFOLDED; CLEARED; dsb(ishst); tlbi(vale1is, at(0)); dsb(ish); FOLDED; }
CASE(fold_short_range, "S6", "S6", "a range of the first half alone")
{ UNFOLDED; CLEARED; dsb(ishst); tlbi(rvale1is, range(0, 3, 3)); dsb(ish); FOLDED; }
CASE(fold_no_dsb, "S3", "S3", "no DSB after the TLBI")
{ UNFOLDED; CLEARED; dsb(ishst); tlbi(rvale1is, range(0, 7, 3)); FOLDED; }
CASE(unfold, "ok", "ok", "clear all, flush, write all without the bit")
{ FOLDED; CLEARED; dsb(ishst); tlbi(rvale1is, range(0, 7, 3)); dsb(ish); UNFOLDED; }
CASE(unfold_no_tlbi, "S2", "S2", "the same without the TLBI")
{ FOLDED; CLEARED; dsb(ish); UNFOLDED; }
CASE(unfold_one_tlbi, "ok", "ok", "a TLBI of each page, of a group that goes")
{ FOLDED; CLEARED; dsb(ishst); ALL(i) tlbi(vae1is, at(i)); dsb(ish); }
CASE(member_alone, "S4", "S4", "one member of a live group is broken rightly, and made without the bit")
{ FOLDED; st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), A(3)); }
CASE(member_elsewhere, "S4", "S4", "the same, made with the bit at an address that does not go with the others")
{ FOLDED; st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), B(3) | CONT); }
CASE(member_at_once, "S1 S4", "S1 S4", "one member of a live group loses the bit at once")
{ FOLDED; st(P(3), A(3)); }
CASE(member_again, "ok", "ok", "one member goes and comes back as it was")
{ FOLDED; st(P(3), 0); dsb(ishst); tlbi(vale1is, at(3)); dsb(ish); st(P(3), A(3) | CONT); }
CASE(group_rights, "ok", "ok", "rights of a live group, entry by entry, and the TLBI behind")
{ FOLDED; ALL(i) st(P(i), A(i) | CONT | RO); dsb(ishst); tlbi(rvale1is, range(0, 7, 3)); dsb(ish); }
CASE(group_moves, "ok", "ok", "a whole group goes elsewhere")
{ FOLDED; CLEARED; dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); ALL(i) st(P(i), B(i) | CONT); }
CASE(group_moves_no_tlbi, "S2", "S2", "the same without the TLBI")
{ FOLDED; CLEARED; dsb(ish); ALL(i) st(P(i), B(i) | CONT); }
CASE(group_zapped, "ok", "ok", "all members go, one after the other, and one TLBI")
{ FOLDED; CLEARED; dsb(ishst); tlbi(aside1is, ASID(5)); dsb(ish); }
