"""Fixtures of this folder; what they give is in `application_script`, so that tests can import its names."""

from __future__ import annotations

import pytest
from application_script import RecordingListener, Script


@pytest.fixture
def script() -> Script:
    made = Script()
    made.subscribe()
    return made


@pytest.fixture
def listener() -> RecordingListener:
    return RecordingListener()
