/* A guest without an operating system that does right and wrong sequences on purpose, for the recorder to judge.
 *
 * Each CASE says its name, what is found with one CPU and with two to four ("ok": nothing; "-": not run; else the rules, parted
 * by spaces), and what it does. Its tables map 2 MiB at a VA of its own, which the console tells with its name. tests/record/test_litmus.py
 * reads the cases from these files and holds the recorder's verdict to them. */

#include "litmus.h"

#include "cases_pages.h"
#include "cases_groups.h"
#include "cases_tables.h"
#include "cases_spaces.h"
#include "cases_returns.h"

u64 tables[MOST_CASES][512] __attribute__((aligned(4096)));
u64 uppers[MOST_CASES][512] __attribute__((aligned(4096)));
u64 spares[MOST_CASES][512] __attribute__((aligned(4096)));
u64 p_l1[512] __attribute__((aligned(4096))), p_l2[512] __attribute__((aligned(4096)));
u64 q_l1[512] __attribute__((aligned(4096))), idle_l1[512] __attribute__((aligned(4096)));
u64 kernel_l2[512] __attribute__((aligned(4096)));
u64 slot;
int cpus = 1;

/* PL011: the first UART of QEMU's virt machine. */
static void say(const char *text)
{
	for (; *text; text++)
		*(volatile u32 *)(OFFSET + 0x9000000) = *text;
}

static void say_number(u64 number)
{
	char digits[17] = { 0 };

	for (int i = 15; i >= 0; i--, number >>= 4)
		digits[i] = "0123456789abcdef"[number & 15];
	say(digits);
}

/* PSCI, by HVC where nothing runs at EL2 or EL3. */
static long psci(u64 function, u64 one, u64 two, u64 three)
{
	register u64 x0 asm("x0") = function;
	register u64 x1 asm("x1") = one;
	register u64 x2 asm("x2") = two;
	register u64 x3 asm("x3") = three;

	asm volatile("hvc #0" : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3) : : "memory");
	return (long)x0;
}
#define CPU_ON 0xc4000003
#define SYSTEM_OFF 0x84000008

void unexpected(u64 esr, u64 elr, u64 far)
{
	say("unexpected exception: ESR ");
	say_number(esr);
	say(" ELR ");
	say_number(elr);
	say(" FAR ");
	say_number(far);
	say("\n");
	psci(SYSTEM_OFF, 0, 0, 0);
	for (;;)
		;
}

/* What the other CPUs are to do; 0 when it is done. */
static struct {
	void (*what)(void);
	int here;
} __attribute__((aligned(64))) mailbox[4];

void run_on(int cpu, void (*what)(void))
{
	__atomic_store_n(&mailbox[cpu].what, what, __ATOMIC_RELEASE);
	while (__atomic_load_n(&mailbox[cpu].what, __ATOMIC_ACQUIRE))
		;
}

static void obey(int cpu)
{
	run_p();
	__atomic_store_n(&mailbox[cpu].here, 1, __ATOMIC_RELEASE);
	for (;;) {
		void (*what)(void) = __atomic_load_n(&mailbox[cpu].what, __ATOMIC_ACQUIRE);

		if (what) {
			what();
			__atomic_store_n(&mailbox[cpu].what, 0, __ATOMIC_RELEASE);
		}
	}
}

static void back_to_p(void)
{
	run_p();
}

extern const struct litmus cases_begin[], cases_end[];
extern void secondary(void);

static void play(const struct litmus *it)
{
	/* Linked before anything is in them: no TLB holds any of it. */
	st(LINK, TABLE(tables[slot]));
	st(&kernel_l2[slot], TABLE(uppers[slot]));
	dsb(ishst);
	isb();
	say("case ");
	say(it->name);
	say(" ");
	say_number(VA(0));
	say(" ");
	say_number(KVA(0));
	say("\n");
	it->run();
	/* Nothing of it is left to the next one. */
	for (int cpu = 1; cpu < cpus; cpu++)
		run_on(cpu, back_to_p);
	run_p();
	dsb(ish);
	tlbi_all(vmalle1is);
	dsb(ish);
	isb();
}

void litmus_main(u64 cpu)
{
	if (cpu)
		obey(cpu);
	st(&p_l1[1], TABLE(p_l2));
	st(&kernel_l1[2], TABLE(kernel_l2));
	dsb(ishst);
	isb();
	run_p();
	for (; cpus < 4 && psci(CPU_ON, cpus, pa(secondary), cpus) == 0; cpus++)
		while (!__atomic_load_n(&mailbox[cpus].here, __ATOMIC_ACQUIRE))
			;
	for (const struct litmus *it = cases_begin; it < cases_end; it++, slot++) {
		const char *expected = cpus == 1 ? it->one : it->more;

		if (slot < MOST_CASES && expected[0] != '-')
			play(it);
	}
	say("end\n");
	psci(SYSTEM_OFF, 0, 0, 0);
	for (;;)
		;
}
