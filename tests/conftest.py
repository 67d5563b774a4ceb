"""Folioscope's own tests use the plugin as a user's would."""

import signal

import pytest

from skips import Skips

pytest_plugins = ["folioscope.plugin"]


def pytest_configure(config: pytest.Config) -> None:
    """A skip is one of the list.

    What the tests start gets signals as from an interactive shell, also under `nohup` and in the background of a
    script, where SIGHUP and SIGINT are ignored, and what is ignored is inherited. This process goes on ignoring them:
    a handler that does nothing is not inherited."""
    config.pluginmanager.register(Skips())
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
