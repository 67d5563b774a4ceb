# SPDX-License-Identifier: GPL-2.0-only
# Folioscope. `make` alone lists the targets and variables.

GRANULE ?= 4k
MACHINE ?= auto
KERNEL ?=
BASE ?= 6.12
VMLINUX ?=
CPU ?=
MEM ?=
SMP ?=
APPEND ?=
POLICY ?=
BUILDROOT ?=
PYTEST ?=
DEBUG ?=
RECORD ?=
ONLY ?=
DEPTH ?=
SAMPLE ?=
SEED ?=
SETUP ?=

export KERNEL BASE VMLINUX MACHINE GRANULE BUILDROOT DEBUG RECORD SETUP

scripts := vmm/setup
# With SETUP=check nothing is done after the look at the host.
then := $(if $(filter check,$(SETUP)),true)
# What is built for: a kernel image that the user names needs no build.
is-file := $(if $(KERNEL),$(shell test -f '$(KERNEL)' && echo yes))
build-granules = $(if $(is-file),,$(1))
# The emulated arm64 host that the rig's own monitor runs in where there is no real one.
build-carrier := $(if $(filter kvm-in-tcg,$(MACHINE)),--carrier)

# The source that our patches go on, if not the pinned one.
build-base := $(if $(filter-out 6.12,$(BASE)),--base $(BASE))

options := --machine $(MACHINE) --granule $(GRANULE) \
	$(if $(is-file),--kernel '$(KERNEL)') $(if $(VMLINUX),--vmlinux '$(VMLINUX)') \
	$(if $(CPU),--cpu '$(CPU)') $(if $(MEM),--memory '$(MEM)') $(if $(SMP),--smp '$(SMP)') \
	$(if $(APPEND),--append='$(APPEND)') $(if $(POLICY),--policy '$(POLICY)')

# The crossing is recorded where that can be: QEMU's TCG. On an arm64 host it runs on KVM.
no-recording := $(strip $(filter 0,$(RECORD)) $(if $(RECORD),,$(filter-out auto tcg,$(MACHINE)) $(filter aarch64,$(shell uname -m))))

.DEFAULT_GOAL := help
.PHONY: help run cross test test-long test-arm64 series lint audit docs dist container bench lab fuzz boot build rootfs cache clean

help: ## list the targets and variables
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  KERNEL=     nothing: the pinned, patched kernel; a source tree (built out of tree);'
	@echo '              an Image or a distribution vmlinuz         VMLINUX=    its vmlinux'
	@echo '  BASE=       6.12 7.x: which source has our patches, the pinned one or Debian'"'"'s newest 7.x [$(BASE)]'
	@echo '  GRANULE=    4k 16k 64k [$(GRANULE)]     MACHINE=    auto tcg kvm kvm-in-tcg [$(MACHINE)]'
	@echo '  CPU=        max cortex-a72 neoverse-n1 ...   MEM=  1G    SMP=  2'
	@echo '  POLICY=     sysfs baseline simple variable retry adaptive   APPEND=  more kernel command line'
	@echo '  DEBUG=1     the kernel that is built checks itself too: KASAN, lockdep, page_table_check, ...'
	@echo '  RECORD=1    make run judges the guest'"'"'s sequences too: stores to page tables, TLBIs, barriers (docs/recorder.md);'
	@echo '              make cross does where it can; 0: it does not'
	@echo '  ONLY=       states and operations of make cross, by comma: swapped,move     DEPTH=2  two operations in a row'
	@echo '  SAMPLE=     so many sequences of operations of make cross, drawn by SEED=, and not all: DEPTH=3 SAMPLE=50'
	@echo '  PYTEST=     arguments for pytest: make test PYTEST="-k tour"     AGAIN=1  test-long, test-arm64, series: from the start'
	@echo '  SETUP=      check: only say what would be installed; no: never install'
	@echo '  EXP=        experiments of make lab: page_fault1 malloc1 orders ...'
	@echo '  QUICK=1     make lab: five runs of each, and shorter loads; make cross: a third of the cells'

# Each begins with a look at what the user said, before anything is installed.
run: ## set up, build what is missing, boot, fault, read, judge
	@$(scripts)/inputs.sh run
	@$(scripts)/packages.sh run
	@$(then) $(scripts)/build.sh $(build-carrier) $(build-base) $(call build-granules,$(GRANULE))
	@$(if $(filter-out 0,$(RECORD)),$(then) $(scripts)/plugin.sh)
	@$(then) out/folioscope run $(options) $(if $(filter-out 0,$(RECORD)),--record) --html out/report.html
	@$(then) echo 'every state of memory under every operation: make cross'

cross: ## every state of memory under every operation, judged
	@$(scripts)/inputs.sh cross
	@$(scripts)/packages.sh cross
	@$(then) $(scripts)/build.sh $(build-carrier) $(build-base) $(call build-granules,$(GRANULE))
	@$(if $(no-recording),,$(then) $(scripts)/plugin.sh $(if $(RECORD),,--where-possible))
	@$(then) out/folioscope cross $(options) $(if $(no-recording),,$$(test ! -e out/librecorder_plugin.so || echo --record)) $(if $(ONLY),--only '$(ONLY)') $(if $(DEPTH),--depth '$(DEPTH)') $(if $(SAMPLE),--sample '$(SAMPLE)') $(if $(SEED),--seed '$(SEED)') $(if $(QUICK),--quick)

boot: ## boot a guest and stay; prints how to look into it
	@$(scripts)/inputs.sh boot
	@$(scripts)/packages.sh boot
	@$(then) $(scripts)/build.sh $(build-carrier) $(build-base) $(call build-granules,$(GRANULE))
	@$(then) out/folioscope boot $(options)

build: ## build everything for GRANULE, run nothing
	@$(scripts)/inputs.sh build
	@$(scripts)/packages.sh build
	@$(then) $(scripts)/build.sh $(build-carrier) $(build-base) $(call build-granules,$(GRANULE))

test: ## set up and run every test: lint, Rust, pytest on real guests
	@$(scripts)/inputs.sh test
	@$(scripts)/packages.sh test
	@$(then) $(scripts)/build.sh --carrier 4k 16k 64k
	@$(then) $(scripts)/plugin.sh --where-possible
	@$(then) $(scripts)/test.sh $(PYTEST)

test-long: ## the tests that take too long for `make test`; goes on where it stopped
	@$(scripts)/inputs.sh test
	@$(scripts)/packages.sh test
	@$(then) $(scripts)/build.sh --carrier --mutants --debug --net 4k 16k 64k
	@$(then) $(scripts)/plugin.sh --where-possible
	@$(then) $(scripts)/test_long.sh $(if $(AGAIN),--afresh) $(PYTEST)
	@$(then) $(scripts)/test_arm64.sh $(if $(AGAIN),--afresh)

test-arm64: ## rehearse an arm64 host with KVM: make run and pytest as its user, in a carrier
	@$(scripts)/inputs.sh test
	@$(scripts)/packages.sh test
	@$(then) $(scripts)/build.sh --carrier 4k 16k 64k
	@$(then) $(scripts)/test_arm64.sh $(if $(AGAIN),--afresh) $(PYTEST)

series: ## build the series patch by patch, and play the tour on each kernel; goes on where it stopped
	@$(scripts)/inputs.sh series
	@$(scripts)/packages.sh series
	@$(then) $(scripts)/build.sh
	@$(then) kernel-patches/tree.sh >out/logs/tree.path
	@$(then) out/folioscope series base..series --tree "$$(cat out/logs/tree.path)" --granule $(GRANULE) --off $(if $(AGAIN),--again)

lint: ## rustfmt, clippy, ruff, mypy, typos, reuse, shellcheck, checkpatch
	@$(scripts)/packages.sh lint
	@$(then) $(scripts)/lint.sh

audit: ## advisories on and licences of what is depended on (needs cargo-deny, pip-audit and a network)
	@$(scripts)/audit.sh --strict

docs: ## build the documents as a site, out/site, and check their links
	@$(scripts)/packages.sh docs
	@$(then) $(scripts)/docs.sh

define pack
@$(scripts)/inputs.sh dist
@$(scripts)/packages.sh dist
@$(then) $(scripts)/build.sh --packed --carrier 4k 16k 64k
@$(then) $(scripts)/dist.sh
endef

dist: ## pack source, wheel, static commands, kernels and initramfs, with checksums, into out/dist
	$(pack)

container: ## make a container image of what make dist packs, by buildah, without root
	@$(scripts)/container.sh --tools
	$(pack)
	@$(then) $(scripts)/container.sh

bench: ## measure; prints a table and writes out/bench.json
	@$(scripts)/inputs.sh bench
	@$(scripts)/packages.sh bench
	@$(then) $(scripts)/build.sh $(if $(KVMTOOL),--carrier) $(call build-granules,4k)
	@$(then) $(scripts)/bench.sh $(if $(is-file),--kernel '$(KERNEL)') $(if $(VMLINUX),--vmlinux '$(VMLINUX)')

# The experiment of TCP has a kernel of its own, which is built for it alone.
lab-net := $(if $(is-file),,$(if $(EXP),$(filter tcp,$(EXP)),tcp))

lab: ## measure what the order policies do: EXP= names experiments, QUICK=1 takes fewer runs; goes on where it stopped
	@$(scripts)/inputs.sh lab
	@$(scripts)/packages.sh lab
	@$(then) $(scripts)/build.sh $(if $(lab-net),--net) $(call build-granules,4k)
	@$(then) $(scripts)/plugin.sh
	@$(then) $(scripts)/lab.sh run $(EXP) $(if $(QUICK),--quick) $(if $(SMP),--smp '$(SMP)') \
		$(if $(MEM),--memory '$(MEM)') $(if $(CPU),--cpu '$(CPU)') \
		$(if $(is-file),--kernel '$(abspath $(KERNEL))') $(if $(VMLINUX),--vmlinux '$(abspath $(VMLINUX))')

fuzz: ## run the fuzz targets, a minute each (needs cargo-fuzz and a nightly Rust)
	@$(scripts)/fuzz.sh

rootfs: ## pack the initramfs; with BUILDROOT=/path, build it by Buildroot instead
	@$(scripts)/inputs.sh rootfs
	@$(scripts)/packages.sh rootfs
	@$(then) $(scripts)/rootfs.sh

cache: ## show the cache of builds by age and size; DAYS=30 or GIB=20 prunes it
	@$(scripts)/cache.sh $(if $(DAYS),--days '$(DAYS)') $(if $(GIB),--gib '$(GIB)')

clean: ## remove what is ours in out/ (the cache of builds stays)
	@$(scripts)/clean.sh
