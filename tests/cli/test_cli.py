"""The command `instride`, as its users start it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

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
