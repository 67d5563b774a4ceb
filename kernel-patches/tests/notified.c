// SPDX-License-Identifier: GPL-2.0-only
// A KVM guest whose memory is ours, while write faults of ours put other folios there: it must not go on with the old ones.
// KVM maps our pages at stage 2 and is told by MMU notifiers of what changes; a range of theirs that is too small leaves
// the guest with a page that we do not have any more, which nobody else would see.
//
// Says a line for each way that the memory changes, "ok" or "not ok" with the first page that was wrong. Needs
// anon_order/policy and the switches of anon_order/, and leaves them as they are at boot.
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THP "/sys/kernel/mm/transparent_hugepage/"
// IPAs: where the guest runs, where it sees our memory, and where nothing is, so that an access comes to us.
#define CODE 0x0UL
#define MEMORY 0x40000000UL
#define DOORBELL 0x10000000UL
#define READ (~0UL)

// Asks for an address, and for what to write there (or to read); tells what is there.
static const uint32_t code[] = {
	0xd2a20002, // movz x2, #0x1000, lsl #16
	0xf9400040, // ldr x0, [x2]
	0xf9400443, // ldr x3, [x2, #8]
	0xb100047f, // cmn x3, #1
	0x54000040, // b.eq .+8
	0xf9000003, // str x3, [x0]
	0xf9400001, // ldr x1, [x0]
	0xf9000841, // str x1, [x2, #16]
	0x17fffff9, // b .-28
};

static int cpu;
static struct kvm_run *run;
static char *memory;
static size_t page, pages;
static int failed;

static void put(const char *name, const char *text)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), THP "%s", name);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		err(1, "%s to %s", text, path);
	close(fd);
}

static void map(int vm, uint32_t slot, uint64_t ipa, void *at, size_t size)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot, .guest_phys_addr = ipa, .memory_size = size, .userspace_addr = (uintptr_t)at,
	};

	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region))
		err(1, "memory slot %u", slot);
}

static void boot(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm, size;
	struct kvm_vcpu_init init;
	uint64_t pc = CODE;
	struct kvm_one_reg reg = {
		.id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | KVM_REG_ARM_CORE_REG(regs.pc),
		.addr = (uintptr_t)&pc,
	};
	void *text = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (kvm < 0)
		err(1, "/dev/kvm");
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0 || text == MAP_FAILED)
		err(1, "VM");
	memcpy(text, code, sizeof(code));
	map(vm, 0, CODE, text, page);
	map(vm, 1, MEMORY, memory, pages * page);
	cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
	if (cpu < 0 || run == MAP_FAILED || ioctl(vm, KVM_ARM_PREFERRED_TARGET, &init) ||
	    ioctl(cpu, KVM_ARM_VCPU_INIT, &init) || ioctl(cpu, KVM_SET_ONE_REG, &reg))
		err(1, "vCPU");
}

/* What the guest reads of a page, after it has written @value there, if that is not READ. */
static uint64_t guest(size_t at, uint64_t value)
{
	uint64_t answers[] = { MEMORY + at * page, value }, told;

	for (;;) {
		if (ioctl(cpu, KVM_RUN, 0) || run->exit_reason != KVM_EXIT_MMIO)
			errx(1, "the guest ended for another reason, %u", run->exit_reason);
		if (!run->mmio.is_write) {
			memcpy(run->mmio.data, &answers[(run->mmio.phys_addr - DOORBELL) / 8], 8);
			continue;
		}
		memcpy(&told, run->mmio.data, 8);
		return told;
	}
}

static uint64_t *ours(size_t at)
{
	return (uint64_t *)(memory + at * page);
}

/* The page frame at a page of ours; the zero page's is hidden from nobody who is root. */
static uint64_t frame(size_t at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, ((uintptr_t)memory / page + at) * 8) != 8)
		err(1, "pagemap");
	close(fd);
	return entry & ((1UL << 55) - 1);
}

static void wait_for_all(const char *what, uint64_t salt)
{
	size_t at;

	for (at = 0; at < pages; at++) {
		uint64_t wanted = salt ? salt + at : 0, got = guest(at, READ);

		if (got != wanted)
			errx(1, "%s: page %zu is %#lx to the guest, not %#lx", what, at, got, wanted);
	}
}

/* All pages are another's now; we write them, and the guest has to see it. @salt is what they held, of @first that frame. */
static void judge(const char *what, uint64_t salt, uint64_t first, int moves)
{
	uint64_t now = frame(0);
	size_t at, wrong = pages;
	uint64_t got = 0;

	for (at = 0; at < pages; at++) {
		if (frame(at) != now + at || now % pages || (now != first) != moves) {
			printf("not ok - %s: no folio of %zu pages was put there at once\n", what, pages);
			failed = 1;
			return;
		}
	}
	for (at = 0; at < pages; at++)
		*ours(at) = salt + 0x1000 + at;
	for (at = pages; at-- > 0;) {
		uint64_t seen = guest(at, READ);

		if (seen != salt + 0x1000 + at)
			wrong = at, got = seen;
	}
	if (wrong == pages)
		printf("ok - %s\n", what);
	else
		printf("not ok - %s: page %zu of %zu is %#lx to the guest, not %#lx\n", what, wrong, pages, got,
		       salt + 0x1000 + wrong);
	failed |= wrong != pages;
}

/* A child that has all of our pages, and sleeps. */
static pid_t share(void)
{
	pid_t child = fork();

	if (child < 0)
		err(1, "fork");
	if (!child)
		for (;;)
			pause();
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* A write to one page, by us or by the guest: the fault that is looked at. */
static void write_one(int by_guest, size_t at, uint64_t value)
{
	if (by_guest)
		guest(at, value);
	else
		*ours(at) = value;
}

int main(void)
{
	static const char * const by[] = { "us", "the guest" };
	char what[64], *end_of_area;
	size_t at, size;
	int who;

	setvbuf(stdout, NULL, _IONBF, 0);
	page = sysconf(_SC_PAGESIZE);
	// As many as a contiguous group, which is what the policies prefer.
	pages = page == 4096 ? 16 : page == 16384 ? 128 : 32;
	size = pages * page;
	end_of_area = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (end_of_area == MAP_FAILED)
		err(1, "mmap");
	memory = (char *)(((uintptr_t)end_of_area + size - 1) & ~(size - 1));
	if (madvise(memory, size, MADV_HUGEPAGE))
		err(1, "MADV_HUGEPAGE");
	put("anon_order/policy", "variable");
	boot();
	for (who = 0; who < 2; who++) {
		uint64_t salt = 0x10000 << who, first;
		pid_t child;

		madvise(memory, size, MADV_DONTNEED);
		for (at = 0; at < pages; at++)
			(void)*(volatile uint64_t *)ours(at);
		wait_for_all("zero pages", 0);
		first = frame(0);
		put("anon_order/zero_page", "1");
		write_one(who, 5, salt);
		put("anon_order/zero_page", "0");
		snprintf(what, sizeof(what), "over zero pages, by %s", by[who]);
		judge(what, salt, first, 1);

		for (at = 0; at < pages; at++)
			*ours(at) = salt + 0x2000 + at;
		child = share();
		wait_for_all("shared", salt + 0x2000);
		first = frame(0);
		put("anon_order/copy", "1");
		write_one(who, 5, salt);
		put("anon_order/copy", "0");
		snprintf(what, sizeof(what), "copied, by %s", by[who]);
		judge(what, salt + 0x2000, first, 1);
		end(child);

		end(share());
		for (at = 0; at < pages; at++)
			guest(at, READ);
		first = frame(0);
		put("anon_order/reuse", "1");
		write_one(who, 5, salt);
		put("anon_order/reuse", "0");
		snprintf(what, sizeof(what), "reused, by %s", by[who]);
		judge(what, salt + 0x4000, first, 0);
	}
	put("anon_order/policy", "variable");
	return failed;
}
