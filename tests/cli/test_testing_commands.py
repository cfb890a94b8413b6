"""The commands of `instride.testing`, with what strangers give them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from instride.errors import KafkaTimeoutError
from instride.testing import simulate
from instride.testing._simulation.campaign import planned
from instride.testing._simulation.corpus import encode
from instride.testing._simulation.planning_groups import GROUPS
from instride.testing._simulation.planning_harsh import HARSH
from instride.testing._simulation.planning_unruly import MEANS
from instride.testing.simulate import _plan_in
from instride.testing.simulation import plan_for, run
from instride_command import ending

COMMANDS = pytest.mark.parametrize(
    "command",
    [["check", "history.jsonl"], ["simulate", "--histories", "1"], ["explore", "--depth", "1", "--scene", "joining"]],
    ids=lambda command: command[0],
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "history.jsonl").write_text(run(plan_for(0)).lines(), encoding="utf-8")
    return tmp_path


def ended(folder: Path, command: list[str], streams: str = "", output: int | None = None) -> tuple[int, str]:
    """Its status, and its errors. streams: as a shell has them."""
    script = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", f"instride.testing.{command[0]}"]
    done = subprocess.run(
        [*script, *command[1:]],
        cwd=folder,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads any more, as of `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@COMMANDS
def test_an_output_that_nobody_reads_ends_it_without_a_word(command: list[str], folder: Path, unread: int) -> None:
    assert ended(folder, command, output=unread) == (141, "")


def test_errors_that_nobody_reads_end_it_too(folder: Path, unread: int) -> None:
    assert ended(folder, ["check", "nosuch"], "2>&1", unread)[0] == 141


@COMMANDS
def test_a_closed_output_changes_no_status(command: list[str], folder: Path) -> None:
    """check's 1 would mean a violation."""
    assert ended(folder, command, ">&-") == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@COMMANDS
def test_a_full_disk_is_told_in_one_line(
    command: list[str], unbuffered: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert ended(folder, command, ">/dev/full") == (2, "instride: [Errno 28] No space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /dev/full")
def test_a_full_disk_that_cannot_be_told_has_its_status(folder: Path) -> None:
    assert ended(folder, ["check", "history.jsonl"], ">/dev/full 2>&1")[0] == 2


@pytest.mark.parametrize("name", ["EDQUOT", "EFBIG", "EIO"])
def test_what_cannot_be_written_for_another_reason_is_told_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> NoReturn:
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(ending, "keep_status", lambda: None)
    assert ending.status_of(fails) == 2
    assert name in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ["check", "simulate", "explore"])
def test_a_help_that_cannot_be_written_is_told(
    name: str, unbuffered: str, folder: Path, unread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [name, "--help"]
    assert ended(folder, command, ">/dev/full") == (2, "instride: [Errno 28] No space left on device\n")
    assert ended(folder, command, output=unread) == (141, "")


@pytest.mark.parametrize(
    "content",
    [
        *[None, b"\xff", b"{", b"{}", b"5", b'{"members": 5}', b"[" * 100_000],
        *[b'{"members": [{"name": "a", "loop": "none"}]}', b'{"members": [{"name": "a"}], "partitions": "4"}'],
        *[b'{"members": [], "produced": [[1, 2]]}', b'{"members": [], "faults": [{"time": "soon", "kind": "cut"}]}'],
        *[b'{"members": [], "produced": {"1": 2}}', b'{"members": [{"name": "a", "instance": 5}]}'],
    ],
    ids=lambda content: str(content)[:70],
)
def test_a_file_that_is_no_plan_is_told(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        simulate.main(["--plan", str(tmp_path / "plan.json")])
    assert f"error: {tmp_path / 'plan.json'} is no plan: " in capsys.readouterr().err


@pytest.mark.parametrize("mean", [None, *HARSH, *GROUPS, *MEANS])
def test_each_plan_is_one(mean: str | None) -> None:
    for seed in range(20):
        plan = planned(seed, frozenset([mean] if mean else []))
        assert _plan_in(encode(plan)) == plan


def test_a_bug_that_a_history_shows_is_no_mistake_in_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the client's own may be an OSError."""

    def fails(_: object) -> NoReturn:
        raise KafkaTimeoutError("a bug")

    monkeypatch.setattr(simulate, "run", fails)
    with pytest.raises(KafkaTimeoutError, match="a bug"):
        simulate.main(["--write", str(tmp_path / "history.jsonl")])


def test_a_history_that_nobody_reads_ends_it_without_a_word(folder: Path, unread: int) -> None:
    assert ended(folder, ["simulate", "--write", "/dev/stdout"], output=unread) == (141, "")


def test_a_history_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        simulate.main(["--write", str(tmp_path)])
    assert "Is a directory" in capsys.readouterr().err
