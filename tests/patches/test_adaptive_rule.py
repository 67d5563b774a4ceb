# SPDX-License-Identifier: GPL-2.0-only
"""Policy ``adaptive`` as a rule: memory by stride, start and policy, and the kernel's own functions beside the model.

Both run without a guest; ``test_adaptive`` has the same of what guests do.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from adaptive_model import Adaptive, strides, waste
from order_model import Model

PATCHES = Path(__file__).resolve().parents[2] / "kernel-patches"
SERIES = {"6.12": PATCHES, "7.x": PATCHES / "7.x"}

# What the kernel's functions use of the kernel.
AROUND = r"""
#include <stdbool.h>
typedef unsigned char u8;
#define BIT(n) (1UL << (n))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define FIELD_GET(mask, reg) (((reg) & (mask)) >> __builtin_ctzl(mask))
#define FIELD_PREP(mask, value) (((unsigned long)(value) << __builtin_ctzl(mask)) & (mask))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define __fls(word) (63 - __builtin_clzl(word))
#define ilog2(number) (63 - __builtin_clzl(number))
"""
CALLS = r"""
int top(unsigned long allowed, int preferred, unsigned long pages, bool hinted)
{
	return adapt_top(allowed, preferred, pages, hinted);
}
bool probes(u8 state, bool hinted, unsigned long block)
{
	return adapt_probes(state, hinted, block);
}
int fault(u8 *state, unsigned long page, int top, bool hinted, unsigned long allowed,
	unsigned int below, unsigned int above, bool sparse)
{
	struct adapt_around around = { .below = below, .above = above, .sparse = sparse };
	u8 next = adapt_next(*state, page, top, hinted, &around);
	int order = adapt_order(*state, next, page, top, hinted, allowed, &around);

	*state = next;
	return order;
}
"""


def functions(patches: Path) -> str:
    """What the patch adds that decides."""
    (patch,) = patches.glob("*-mm-adapt-the-order-of-anonymous-folios*.patch")
    text = patch.read_text()
    added = [line[1:] for line in text[text.index("+++ b/mm/anon_order.c") :].splitlines() if line.startswith("+")]
    first = next(at for at, line in enumerate(added) if line.startswith("#define ADAPT_TRUST"))
    last = next(at for at, line in enumerate(added) if "static bool entry_touched" in line)
    last = max(at for at, line in enumerate(added[:last]) if line == "}")
    return "\n".join(added[first : last + 1])


def compiled(text: str, place: Path) -> ctypes.CDLL:
    """These functions, for this machine."""
    (place / "adapt.c").write_text("\n".join([AROUND, text, CALLS]))
    built = place / "adapt.so"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", built, place / "adapt.c"], check=True)
    library = ctypes.CDLL(str(built))
    number = ctypes.c_ulong
    library.top.argtypes = [number, ctypes.c_int, number, ctypes.c_bool]
    library.probes.argtypes, library.probes.restype = [ctypes.c_ubyte, ctypes.c_bool, number], ctypes.c_bool
    library.fault.argtypes = [
        ctypes.POINTER(ctypes.c_ubyte),
        number,
        ctypes.c_int,
        ctypes.c_bool,
        number,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_bool,
    ]
    return library


@pytest.fixture(scope="module", params=sorted(SERIES))
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions as the patch adds them."""
    return compiled(functions(SERIES[request.param]), tmp_path_factory.mktemp("adaptive"))


class Kernel:
    """A VMA whose orders the kernel's functions choose; what is touched is looked up as ``adaptive_orders()`` does."""

    def __init__(self, kernel: ctypes.CDLL, model: Adaptive) -> None:
        self.kernel = kernel
        self.model = model
        self.allowed = sum(1 << order for order in range(2, model.preferred + 1))
        self.state = ctypes.c_ubyte(0)

    def order(self, page: int) -> int:
        """What the functions choose for a fault at a page, by what the model has touched."""
        model = self.model
        top = self.kernel.top(self.allowed, model.preferred, model.end - model.first, model.hinted)
        if not top:
            return 0
        size, block = 1 << top, page >> top
        sparse = False
        for side in (-1, 1):
            if self.kernel.probes(self.state, model.hinted, block + side):
                ends = (block + side) * size, (block + side + 1) * size - 1
                far, near = ends if side < 0 else ends[::-1]
                sparse |= model.touched(far) and not model.touched(near)
        rows = [min(model.row(page, step), size) for step in (-1, 1)]
        state = ctypes.byref(self.state)
        order: int = self.kernel.fault(state, page, top, model.hinted, self.allowed, *rows, sparse)
        return order


def compare(kernel: ctypes.CDLL, preferred: int, hinted: bool) -> None:
    """Fault by fault, over strides, walks and what is neither, in large VMAs and small ones."""
    chance = random.Random(preferred)
    seen, faults = set(), 0
    ways = [pages for _, pages in strides(24)]
    ways += [[*range(64 << max(preferred - 4, 0)), *(4096 + page for page in way)] for way in ways[::9]]
    ways += [[chance.randrange(200) for _ in range(200)] for _ in range(20)]
    ways += [list(range(20 << preferred)), list(range(20 << preferred))[::-1]]
    # So far that no probe can be rarer.
    ways += [list(range(200 << 4))] if preferred == 4 else []
    for at, way in enumerate(ways):
        first = (64 << preferred) + chance.randrange(64)
        pages = max(way) + 1 if at % 3 else 4 * (max(way) + 1)
        model = Adaptive(preferred, first, first + pages, hinted)
        other = Kernel(kernel, model)
        for page in (first + page for page in way):
            if page in model.populated:
                continue
            # The model's fault changes what is touched, so the kernel is asked before.
            wanted = other.order(page)
            assert model.next(page) == wanted, (way, page - first)
            known = other.state.value & 7, other.state.value >> 3
            assert (model.known.trust, model.known.spent) == known, (way, page - first)
            place = Model("retry", wanted, model.first, model.end, populated=model.populated)
            seen.add(place.fault(page)[0])
            faults += 1
    assert seen >= {0, 2, preferred} and faults > 1000


@pytest.mark.parametrize("preferred", [4, 7, 5, 2])
@pytest.mark.parametrize("hinted", [True, False])
def test_kernel_and_model_agree(kernel: ctypes.CDLL, preferred: int, hinted: bool) -> None:
    """The kernel's functions choose what the model does."""
    compare(kernel, preferred, hinted)


# Small wrong edits, as a programmer might make them.
WRONG = {
    "a probe one block early": ("block % every == every - 1", "block % every == every - 2"),
    "no cap of a quarter": ("max(pages / 4, 1UL)", "max(pages / 2, 1UL)"),
    "trust without end": ("min(trust + 1, ADAPT_TRUST_MAX)", "min(trust + 1, 7)"),
    "dense when most of it is there": ("around->below >= size &&", "around->below >= size / 2 &&"),
    "dense downwards never": ("page % size == size - 1 &&", "page % size == size &&"),
    "sparse is forgotten": ("\t\ttrust = 0;\n", "\t\t;\n"),
    "nothing is spent": ("spent = min(spent + 1, ADAPT_SPEND);", "spent = min(spent, ADAPT_SPEND);"),
    "a probe like any other": ("if (adapt_probes(next, hinted, page >> top))", "if (top > 63)"),
    "the row beyond the probe": ("max(min(around->below, at), ", "max(around->below, "),
    "the shorter row": ("run = max(around->below, around->above)", "run = min(around->below, around->above)"),
    "hinted by the row": ("else if (adapt_spends(next, hinted))", "else if (adapt_spends(next, 0))"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_noticed(what: str, tmp_path: Path) -> None:
    """The comparison fails for each of these."""
    right, wrong = WRONG[what]
    text = functions(PATCHES)
    assert text.count(right) == 1, f"the edit of {what} has no place"
    library = compiled(text.replace(right, wrong), tmp_path)
    with pytest.raises(AssertionError):
        for hinted in (True, False):
            compare(library, 4, hinted)


def others(policy: str, count: int = 64) -> dict[str, float]:
    """Pages that are there by page that was touched, under a policy that does not adapt (4K)."""
    found = {}
    for name, pages in strides(count):
        vma = Model(policy, 4, 0, 64 * count + 64)
        vma.write(pages)
        found[name] = len(vma.populated) / count
    return found


def test_memory_by_stride() -> None:
    """A touch in every 64K has a single page in a new VMA; behind a walk, the two together have little more than was
    touched. What the touches alone have in vain then is `test_what_is_given_in_vain_ends`'s."""
    # The example of the RFC that proposed large anonymous folios, in a VMA of its own and after a walk.
    table = {
        (hinted, walked): waste(4, hinted=hinted, walked=walked) for hinted in (False, True) for walked in (0, 64, 4096)
    }
    # Without a hint and a walk before, no page is there that was not touched; a hint is worth seven blocks.
    assert set(table[False, 0].values()) == {1.0}
    bounds = {(False, 64): 1.4, (False, 4096): 1.25, (True, 0): 2.7, (True, 64): 2.4, (True, 4096): 1.25}
    for start, bound in bounds.items():
        worst = max(table[start], key=lambda way, start=start: table[start][way])  # type: ignore[misc]
        assert 1 <= table[start][worst] <= bound, (start, worst, table[start][worst])
    # The table can tell: the other policies have sixteen times as much.
    assert others("variable")["16 up"] == others("retry")["16 up"] == others("simple")["64 down"] == 16
    assert set(others("baseline").values()) == {1.0}


def in_vain(policy: str, pages: list[int], walked: int, hinted: bool) -> float:
    """Pages that are there by page that was touched, those of a walk before it aside (4K)."""
    end = 4 * (walked + 64 * len(pages) + 64)
    if policy == "adaptive":
        adaptive = Adaptive(4, 0, end, hinted)
        adaptive.explain(range(walked))
        before = len(adaptive.populated)
        adaptive.explain(walked + page for page in pages)
        return (len(adaptive.populated) - before) / len(pages)
    vma = Model(policy, 4, 0, end)
    vma.write([*range(walked), *(walked + page for page in pages)])
    return (len(vma.populated) - walked) / len(pages)


def test_the_laboratorys_table_of_strides() -> None:
    """It is made from the models; `baseline` has a page for each, and the policies that do not adapt have the same."""
    starts = [(walked, hinted) for hinted in (False, True) for walked in (0, 64, 4096)]
    rows = []
    for name, pages in strides(64):
        if name.split()[0] not in ("1", "2", "4", "8", "15", "16", "17", "32", "64", "random"):
            continue
        assert in_vain("baseline", pages, 0, False) == 1
        (fixed,) = {in_vain(policy, pages, 0, False) for policy in ("simple", "variable", "retry")}
        adapted = [in_vain("adaptive", pages, *start) for start in starts]
        rows.append(f"| {' | '.join([name, *(f'{value:.2f}' for value in (fixed, *adapted))])} |")
    assert len(rows) == 19
    table = "\n".join(rows)
    assert table in (PATCHES.parent / "docs" / "laboratory.md").read_text(), f"the table is now:\n{table}"


@pytest.mark.parametrize("walked", [64, 256, 1024, 4096, 16384])
def test_what_is_given_in_vain_ends(walked: int) -> None:
    """After a walk, touches 64K apart have large folios up to the next probe: at most 63, no more than were walked."""
    vma = Adaptive(4, 0, 1 << 20, hinted=False)
    vma.explain(range(walked))
    faults = vma.explain(range(walked, walked + 16 * 256, 16))
    large = sum(order > 0 for _, order, _ in faults)
    assert large <= min(63, walked // 16)
    assert all(order == 0 for _, order, _ in faults[64:])


def test_a_walk_costs_little() -> None:
    """All but a few of the faults of a long walk have the largest order: each probe costs five."""
    for hinted in (True, False):
        vma = Adaptive(4, 0, 1 << 20, hinted=hinted)
        faults = len(vma.explain(range(1 << 16)))
        blocks = (1 << 16) >> 4
        assert blocks < faults <= blocks * 1.08 + 40, faults


def test_the_vma_is_seldom_written() -> None:
    """So that many threads share its cache line: how often what is remembered changes, as the cover letter has it."""

    def changes(hinted: bool, pages: range) -> int:
        vma = Adaptive(4, 0, 1 << 20, hinted=hinted)
        before, count = replace(vma.known), 0
        for page in pages:
            vma.explain([page])
            count += vma.known != before
            before = replace(vma.known)
        return count

    walk, apart = range(1 << 16), range(8, 1 << 19, 64)
    assert [changes(hinted, walk) for hinted in (False, True)] == [4, 5]
    assert [changes(hinted, apart) for hinted in (False, True)] == [0, 5]


def test_streams_do_not_disturb_each_other() -> None:
    """Two walks through one VMA, fault by fault in turn, have the orders that each has alone."""

    def alone(start: int) -> list[int]:
        return [order for _, order, _ in Adaptive(4, 0, 1 << 16, hinted=False).explain(range(start, start + 512))]

    vma = Adaptive(4, 0, 1 << 16, hinted=False)
    found: dict[int, list[int]] = {0: [], 1 << 15: []}
    for at in range(512):
        for start in found:
            found[start] += [order for _, order, _ in vma.explain([start + at])]
    # What both know of probes makes them rarer for both, so neither has more faults than alone.
    for start, all_of_it in found.items():
        assert len(all_of_it) <= len(alone(start)) and all_of_it[:7] == [0, 0, 0, 0, 2, 3, 4]


def test_a_single_touch_is_a_single_page() -> None:
    """An area that is mapped, touched once and unmapped, as malloc1 of will-it-scale does: not sixteen pages."""
    for hinted, wanted in ((False, 0), (True, 4)):
        assert [order for _, order, _ in Adaptive(4, 0, 1 << 15, hinted=hinted).explain([0])] == [wanted]
