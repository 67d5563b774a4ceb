/* The litmus guest's first instructions: an arm64 Image (Linux, Documentation/arch/arm64/booting.rst), started at EL1 with the MMU off. */

#define RAM		0x40000000
#define OFFSET		0xffffff8000000000	/* VA of physical address 0, by TTBR1_EL1 */
#define NORMAL		0x0040000000000701	/* a block: AF, Inner Shareable, AttrIndx 0, no EL0 */
#define DEVICE		0x0060000000000409	/* AttrIndx 2 */

	.section .head, "ax"
	.globl	start, enter
	b	start
	.long	0
	.quad	0			/* text_offset: QEMU puts it 2 MiB into RAM */
	.quad	_size
	.quad	0b1010			/* little-endian, 4K pages, anywhere */
	.quad	0, 0, 0
	.ascii	"ARM\x64"
	.long	0

start:	mov	x19, #0
	ldr	x0, bss_va		/* nobody says that memory is zero */
	ldr	x1, end_va
	mov	x2, #OFFSET
	sub	x0, x0, x2
	sub	x1, x1, x2
1:	stp	xzr, xzr, [x0], #16
	cmp	x0, x1
	b.lo	1b
enter:	/* x19: which CPU */
	ldr	x0, mair
	msr	mair_el1, x0
	ldr	x0, tcr
	msr	tcr_el1, x0
	adr	x0, boot_l1
	msr	ttbr0_el1, x0
	adr	x0, kernel_l1
	msr	ttbr1_el1, x0
	isb
	tlbi	vmalle1
	dsb	nsh
	isb
	ldr	x0, sctlr
	msr	sctlr_el1, x0
	isb
	ldr	x0, vectors_va
	msr	vbar_el1, x0
	ldr	x0, stacks_va
	mov	x1, #0x4000
	madd	x0, x1, x19, x0
	add	sp, x0, x1
	mov	x29, #0
	mov	x30, #0
	mov	x0, x19
	ldr	x1, main_va
	br	x1

	/* PSCI's CPU_ON starts here, x0 says which CPU. */
	.globl	secondary
secondary:
	mov	x19, x0
	b	enter

	.balign	8
mair:	.quad	0x0444ff		/* 0 Normal, 1 Non-cacheable, 2 Device-nGnRE */
	/* 39 bits of VA and 4K pages in both halves, 16 bits of ASID, AF and dirty state by hardware */
tcr:	.quad	25 | 25 << 16 | 0b10 << 30 | 0b010 << 32 | 1 << 36 | 1 << 39 | 1 << 40 \
		| 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | 0b11 << 28 | 0b01 << 26 | 0b01 << 24
sctlr:	.quad	0x30d01805
main_va:	.quad	litmus_main
bss_va:	.quad	bss_begin
end_va:	.quad	bss_end
vectors_va: .quad vectors
stacks_va: .quad stacks

	.balign	2048
vectors:
	.rept	16
	mrs	x0, esr_el1
	mrs	x1, elr_el1
	mrs	x2, far_el1
	ldr	x3, =unexpected
	br	x3
	.balign	128
	.endr

	.balign	4096
	/* 39 bits of VA: the first table has level 1, an entry maps 1 GiB. */
	.globl	boot_l1, kernel_l1
boot_l1:
	.quad	DEVICE, RAM | NORMAL
	.fill	510, 8, 0
kernel_l1:
	.quad	DEVICE, RAM | NORMAL
	.fill	510, 8, 0

	.bss
	.balign	4096
stacks:	.skip	4 * 0x4000
