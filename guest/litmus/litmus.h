/* What the cases of the litmus guest are made of: descriptors, stores, barriers, TLB maintenance, other CPUs. */

typedef unsigned long u64;
typedef unsigned int u32;

/* A case: its table, and what it shows. On one CPU, and on two to four; "-" where it is not run. */
struct litmus {
	const char *name;
	const char *one;
	const char *more;
	void (*run)(void);
};
#define CASE(name, one, more, what)						\
	static void name(void);							\
	static const struct litmus litmus_##name				\
	__attribute__((used, section(".cases"))) = { #name, one, more, name };	\
	static void name(void)

/* Where things are: VA of physical address 0 in the upper half; what cases map; their tables. */
#define OFFSET 0xffffff8000000000ul
#define LOWER 0x40000000ul
#define UPPER (OFFSET + 0x80000000ul)
#define SLOT 0x200000ul
#define PA_A 0x43000000ul
#define PA_B 0x43400000ul
#define MOST_CASES 160

extern u64 tables[MOST_CASES][512], uppers[MOST_CASES][512], spares[MOST_CASES][512];
extern u64 p_l1[512], p_l2[512], q_l1[512], idle_l1[512], kernel_l1[512], kernel_l2[512];
extern u64 slot;
extern int cpus;
void run_on(int cpu, void (*what)(void));

static inline u64 pa(const void *va) { return (u64)va - OFFSET; }

/* The descriptors of this case's own tables, and the one that leads to them. */
#define P(i) (&tables[slot][i])
#define K(i) (&uppers[slot][i])
#define SPARE(i) (&spares[slot][i])
#define LINK (&p_l2[slot])

/* Words (Arm ARM D8.3): bit 0 valid, 1 page or table, [4:2] AttrIndx, 7 read-only, [9:8] Inner Shareable, 10 AF, 11 nG,
 * 52 Contiguous, 53 PXN, 54 UXN. */
#define PAGE 0x0060000000000f43ul
#define RO (1ul << 7)
#define AF (1ul << 10)
#define NG (1ul << 11)
#define DBM (1ul << 51)
#define CONT (1ul << 52)
#define SOFTWARE (1ul << 55)
#define DEVICE (2ul << 2)
#define A(i) (PAGE + PA_A + (i) * 0x1000ul)
#define B(i) (PAGE + PA_B + (i) * 0x1000ul)
#define BLOCK(at) ((PAGE & ~2ul) + (at))
#define TABLE(at) (pa(at) | 3)
#define SWAP 0x123456789ab0ul

/* Stores of each kind. None is shared, so that each has an address of its own. */
#define ALWAYS static inline __attribute__((always_inline))
ALWAYS void st(u64 *at, u64 word) { asm volatile("str %1, [%0]" : : "r"(at), "r"(word) : "memory"); }
ALWAYS void stlr(u64 *at, u64 word) { asm volatile("stlr %1, [%0]" : : "r"(at), "r"(word) : "memory"); }
ALWAYS void stw(void *at, u32 half) { asm volatile("str %w1, [%0]" : : "r"(at), "r"(half) : "memory"); }
ALWAYS void stp(u64 *at, u64 one, u64 two) { asm volatile("stp %1, %2, [%0]" : : "r"(at), "r"(one), "r"(two) : "memory"); }
ALWAYS void swp(u64 *at, u64 word) { asm volatile("swpal %1, %1, [%0]" : "+r"(at), "+r"(word) : : "memory"); }
ALWAYS void ldclr(u64 *at, u64 bits) { asm volatile("ldclral %1, %1, [%0]" : "+r"(at), "+r"(bits) : : "memory"); }
ALWAYS void ldset(u64 *at, u64 bits) { asm volatile("ldsetal %1, %1, [%0]" : "+r"(at), "+r"(bits) : : "memory"); }
ALWAYS void cas(u64 *at, u64 old, u64 word) { asm volatile("casal %1, %2, [%0]" : "+r"(at), "+r"(old) : "r"(word) : "memory"); }
ALWAYS void stxr(u64 *at, u64 word)
{
	u64 old;
	u32 failed;

	asm volatile("1: ldxr %0, [%2]\n stxr %w1, %3, [%2]\n cbnz %w1, 1b" : "=&r"(old), "=&r"(failed) : "r"(at), "r"(word) : "memory");
}
ALWAYS u64 ld(const volatile void *at)
{
	u64 word;

	asm volatile("ldr %0, [%1]" : "=r"(word) : "r"(at) : "memory");
	return word;
}

/* Barriers and maintenance, by their own names. */
#define dsb(option) asm volatile("dsb " #option : : : "memory")
#define isb() asm volatile("isb" : : : "memory")
#define tlbi(op, operand) asm volatile("tlbi " #op ", %0" : : "r"(operand) : "memory")
#define tlbi_all(op) asm volatile("tlbi " #op : : : "memory")
#define ASID(asid) ((u64)(asid) << 48)
#define VA(i) (LOWER + slot * SLOT + (i) * 0x1000ul)
#define KVA(i) (UPPER + slot * SLOT + (i) * 0x1000ul)
/* By VA: VA[55:12], TTL with its granule, ASID 5. */
#define at(i) ((VA(i) >> 12 & 0xffffffffffful) | ASID(5))
#define at_k(i) (KVA(i) >> 12 & 0xffffffffffful)
#define ttl(level) (1ul << 46 | (u64)(level) << 44)
/* A range of 2 x (num + 1) pages: BaseADDR, TTL, NUM, SCALE 0, TG 4K, ASID 5. */
#define range(i, num, level) ((VA(i) >> 12 & 0x1ffffffffful) | (u64)(level) << 37 | (u64)(num) << 39 | 1ul << 46 | ASID(5))
#define range_k(i, num) ((KVA(i) >> 12 & 0x1ffffffffful) | (u64)(num) << 39 | 1ul << 46)

/* Address spaces: p with ASID 5 or 6, q with ASID 9, idle with none. */
ALWAYS void run(const u64 *root, u64 asid)
{
	asm volatile("msr ttbr0_el1, %0\n isb" : : "r"(pa(root) | ASID(asid)) : "memory");
}
#define run_p() run(p_l1, 5)
#define run_p6() run(p_l1, 6)
#define run_q() run(q_l1, 9)
#define run_idle() run(idle_l1, 0)

/* Which thread runs, and what it does before ERET: to EL0, and to EL1. */
ALWAYS void thread(u64 pid) { asm volatile("msr contextidr_el1, %0" : : "r"(pid) : "memory"); }
ALWAYS void back_to(u64 spsr) { asm volatile("msr spsr_el1, %0" : : "r"(spsr) : "memory"); }
#define back() back_to(0)
#define back_to_kernel() back_to(5)

/* The steps are another CPU's; this one waits for it. */
#define ON(cpu, ...) ({ void steps(void) { __VA_ARGS__; } run_on(cpu, steps); })
#define ALL(i) for (u64 i = 0; i < 16; i++)
