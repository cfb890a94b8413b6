"""Where the broker's jars are: ``KAFKA_HOME``, or a cache that is filled once from Maven Central.

Laws
1. Nothing that was fetched runs before every jar's SHA-256 is the one that this package pins, and no jar is there besides.
   This holds each time anew, not only after fetching.
2. A cache folder is whole or absent: it is filled under another name and then renamed.
3. Two processes that start at once fetch once: a file lock makes the second wait.
4. ``KAFKA_HOME`` is the user's own choice; it is used as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from instride.errors import ChecksumMismatchError, KafkaNotFoundError

__all__ = ["KAFKA_VERSION", "KafkaHome", "cache_folder", "find_kafka"]

logger = logging.getLogger(__name__)

KAFKA_VERSION: Final = "4.3.1"
_ENDPOINT: Final = "+".join(
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",  # Kafka names no logger of its own to Maven; without one it writes no log
    )
)
_SUMS: Final = Path(__file__).with_name(f"kafka-{KAFKA_VERSION}.sha256")
_FETCH_SECONDS: Final = 900.0
_TELL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHome:
    """folder: holds ``libs/*.jar``. version: as this package knows it, or "" for a ``KAFKA_HOME``."""

    folder: Path
    version: str = ""

    @property
    def class_path(self) -> str:
        return str(self.folder / "libs" / "*")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/instride``, or ``~/.cache/instride``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "instride"


def find_kafka() -> KafkaHome:
    """The broker's jars; fetched (about 55 MB) when neither ``KAFKA_HOME`` nor the cache has them.

    Raises KafkaNotFoundError where there is no way to them, ChecksumMismatchError where what came is not what is pinned.
    """
    named = os.environ.get("KAFKA_HOME")
    if named:
        return _named(Path(named))
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    sums = pinned_sums()
    if not _is_whole(folder, sums):
        with _locked(folder.with_suffix(folder.suffix + ".lock")):
            if not _is_whole(folder, sums):  # another process may have filled it while this one waited
                _fill(folder, sums)
    return KafkaHome(folder=folder, version=KAFKA_VERSION)


def _named(folder: Path) -> KafkaHome:
    if not any((folder / "libs").glob("kafka-clients-*.jar")):
        raise KafkaNotFoundError(
            f"KAFKA_HOME is {folder}, but there is no libs/kafka-clients-*.jar in it. "
            "Point it to an unpacked Apache Kafka, or unset it to have one fetched"
        )
    return KafkaHome(folder=folder)


def pinned_sums() -> Mapping[str, str]:
    """Jar name -> SHA-256 in hex, of the list in this package (the format of ``sha256sum``)."""
    lines = _SUMS.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _is_whole(folder: Path, sums: Mapping[str, str]) -> bool:
    if not folder.is_dir():
        return False
    try:
        verify(folder / "libs", sums)
    except ChecksumMismatchError as error:
        logger.warning("the cached Kafka is fetched again: %s", error)
        return False
    return True


def verify(libs: Path, sums: Mapping[str, str]) -> None:
    """Raise ChecksumMismatchError unless the folder holds exactly the pinned jars."""
    there = {path.name for path in libs.glob("*.jar")}
    if there != set(sums):
        missing, foreign = sorted(set(sums) - there), sorted(there - set(sums))
        raise ChecksumMismatchError(f"{libs}: missing jars {missing}, jars that are not pinned {foreign}")
    for name, digest in sums.items():
        with (libs / name).open("rb") as jar:
            found = hashlib.file_digest(jar, "sha256").hexdigest()
        if found != digest:
            raise ChecksumMismatchError(f"{libs / name}: its SHA-256 is {found}, pinned is {digest}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock. The system frees it when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is fetching Apache Kafka; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, sums: Mapping[str, str]) -> None:
    """Fetch, verify, rename. Called under the lock, so leftovers of a killed fetch are ours to remove."""
    for leftover in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        libs = partial / "whole" / "libs"
        libs.mkdir(parents=True)
        for jar in _fetch(partial):
            jar.replace(libs / jar.name)
        verify(libs, sums)
        shutil.rmtree(folder, ignore_errors=True)
        libs.parent.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    logger.info("Apache Kafka %s is in %s", KAFKA_VERSION, folder)


def _fetch(partial: Path) -> list[Path]:
    if find_spec("jgo") is None:
        raise KafkaNotFoundError(
            'there is no Apache Kafka here: set KAFKA_HOME, or let one be fetched: pip install "instride[testing]"'
        )
    logger.info("fetching Apache Kafka %s (about 55 MB, once) into %s", KAFKA_VERSION, partial.parent)
    script = Path(__file__).with_name("fetch_jars.py")
    command = [sys.executable, "-P", str(script), _ENDPOINT, str(partial / "jgo")]
    environment = {**os.environ, "M2_REPO": str(partial / "m2")}
    with (partial / "stdout").open("w+") as out, (partial / "stderr").open("w+") as err:
        with subprocess.Popen(command, stdout=out, stderr=err, env=environment) as fetcher:
            code = _wait(fetcher, partial)
        out.seek(0)
        err.seek(0)
        if code:
            raise KafkaNotFoundError(
                f"Apache Kafka {KAFKA_VERSION} could not be fetched from Maven Central. Is the network there? "
                f"(KAFKA_HOME may name one that is unpacked.) The end of what jgo said: {err.read()[-500:].strip()}"
            )
        return [Path(line) for line in out.read().splitlines()]


def _wait(fetcher: subprocess.Popen[bytes], partial: Path) -> int:
    """Wait for the fetch, telling its progress; killed when its time is over or this wait is interrupted."""
    total = len(pinned_sums())
    try:
        for _ in range(int(_FETCH_SECONDS / _TELL_SECONDS)):
            try:
                return fetcher.wait(_TELL_SECONDS)
            except subprocess.TimeoutExpired:
                count = sum(1 for _ in (partial / "m2").rglob("*.jar"))
                logger.info("fetching Apache Kafka: %d of %d jars", count, total)
        return -1
    finally:
        if fetcher.poll() is None:
            fetcher.kill()
