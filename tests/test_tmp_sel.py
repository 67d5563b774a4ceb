import pytest
from selftests import SELFTESTS
from test_selftests import works, WRITE_FAULTS
from test_debug_kernel import splats, silent
from command import OUT
pytestmark = [pytest.mark.qemu, pytest.mark.network]
NAMES = ("cow", "ksm_functional", "madv_populate", "gup_longterm", "mkdirty", "anon_order", "wp-", "gup_test -u", "mlock2", "transhuge")
@pytest.mark.timeout(7200)
def test_tmp(tmp_path, silent):
    chosen = [s for s in SELFTESTS if any(n in s.words for n in NAMES)]
    works(tmp_path, "tmp", OUT / "kernel-debug" / "Image", chosen, "2G", WRITE_FAULTS)
    assert silent and not splats("\n".join(silent)), splats("\n".join(silent))
