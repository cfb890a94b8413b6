"""The command `instride`, as its users start it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

INSTRIDE = Path(sysconfig.get_path("scripts")) / "instride"


def instride(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [INSTRIDE, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_help_names_the_verbs() -> None:
    ended = instride("--help")
    assert ended.returncode == 0, ended.stderr
    assert "doctor" in ended.stdout


def test_version() -> None:
    assert instride("--version").stdout.strip() == version("instride")


def test_python_runs_it_as_a_module_too() -> None:
    ended = subprocess.run([sys.executable, "-m", "instride", "--version"], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == (version("instride"), "")


def test_a_process_that_a_program_spawns_does_not_run_it_again() -> None:
    """It imports the main module, by another name."""
    ended = subprocess.run([sys.executable, "-c", "import instride.__main__"], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_an_unknown_verb_is_refused() -> None:
    ended = instride("dance")
    assert ended.returncode == 2
    assert "dance" in ended.stderr


def test_doctor_says_what_runs_here() -> None:
    ended = instride("doctor")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    output = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert output["instride"] == version("instride")
    assert output["kio"] == version("kio")
    assert output["instride._wire.decoder"] == "compiled"


def test_a_full_disk_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([INSTRIDE, "doctor"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "instride: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("arguments", [["doctor"], ["--help"], ["dance", "2>&1"]], ids=lambda each: each[0])
def test_an_output_that_nobody_reads_ends_it_without_a_word(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = ["sh", "-c", f'exec "$0" {" ".join(arguments)}', str(INSTRIDE)]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')\n")
    ended = subprocess.run(
        [sys.executable, "-c", "import sys; from instride._cli import main; sys.exit(main())"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "pip install 'instride[cli]'" in ended.stderr
