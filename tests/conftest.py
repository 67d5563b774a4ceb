"""Folioscope's own tests use the plugin as a user's would."""

pytest_plugins = ["folioscope.plugin"]
