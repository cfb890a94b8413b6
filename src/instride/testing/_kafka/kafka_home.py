"""Where the broker's jars are: ``KAFKA_HOME``, or a cache that is filled once from Maven Central.

Laws
1. Nothing that was fetched runs unless every jar's SHA-256 is the one that this package pins, and no other file is
   there. This is looked at anew each time, not only after fetching.
2. A cache folder is whole or absent: it is filled under another name and then renamed.
3. Two processes that start at once fetch once: a file lock makes the second wait.
4. ``KAFKA_HOME`` is the user's own choice; it is used as it is, where no version is requested.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from instride.errors import ChecksumMismatchError, ConfigError, KafkaNotFoundError
from instride.testing._kafka.fetching import fetched

__all__ = ["KAFKA_VERSION", "KAFKA_VERSIONS", "KafkaHome", "cache_folder", "find_kafka", "pinned_sums", "verify"]

logger = logging.getLogger(__name__)

KAFKA_VERSION: Final = "4.3.1"
# Kafka depends on no logger, and without one it writes no log.
_LOGGER: Final = "org.slf4j:slf4j-simple:1.7.36"
KAFKA_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "2.8.2": ("org.apache.kafka:kafka_2.13:2.8.2", _LOGGER),
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", _LOGGER),
    KAFKA_VERSION: (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        _LOGGER,
    ),
}
"""The versions that can be requested, with the Maven coordinates of each."""

# For another version: run fetch_jars.py with its coordinates, joined by "+", and an empty folder, and put into
# kafka-VERSION.sha256 here what `sha256sum *.jar` says in a folder that holds all the jars that came.
_SUMS: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHome:
    """folder: holds ``libs/*.jar``. version: of the fetched one; "" for a ``KAFKA_HOME``, which is not asked."""

    folder: Path
    version: str = ""

    @property
    def class_path(self) -> str:
        """As ``java -cp`` takes it: all jars."""
        return str(self.folder / "libs" / "*")

    @property
    def has_zookeeper(self) -> bool:
        """Whether its brokers keep their cluster in ZooKeeper: those before 3.3, the first that KRaft was ready in."""
        return self.version.startswith("2.")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/instride``, or ``~/.cache/instride``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "instride"


def find_kafka(version: str | None = None) -> KafkaHome:
    """The broker's jars; fetched (25 to 55 MB) when neither ``KAFKA_HOME`` nor the cache has them.

    version: one of `KAFKA_VERSIONS`; None takes ``KAFKA_HOME``, else the newest. Raises ConfigError for any other,
    KafkaNotFoundError where there is no way to the jars, ChecksumMismatchError where what came is not what is pinned.
    Safe from several threads and processes at once.
    """
    named = os.environ.get("KAFKA_HOME")
    if named and version is None:
        return _named(Path(named))
    version = version or KAFKA_VERSION
    if version not in KAFKA_VERSIONS:
        raise ConfigError(f"version {version!r} of Kafka is not pinned here; known: {', '.join(KAFKA_VERSIONS)}")
    folder, sums = cache_folder() / f"kafka-{version}", pinned_sums(version)
    if not _is_whole(folder, sums):
        try:
            _fill_once(folder, version, sums)
        except OSError as error:
            raise KafkaNotFoundError(
                f"Apache Kafka cannot be put into the cache {folder.parent}: {error}. "
                "Set XDG_CACHE_HOME to another place"
            ) from error
    return KafkaHome(folder=folder, version=version)


def _named(folder: Path) -> KafkaHome:
    if not any((folder / "libs").glob("kafka-clients-*.jar")):
        raise KafkaNotFoundError(
            f"KAFKA_HOME is {folder}, but there is no libs/kafka-clients-*.jar in it. "
            "Point it to an unpacked Apache Kafka, or unset it to have one fetched"
        )
    return KafkaHome(folder=folder)


def pinned_sums(version: str = KAFKA_VERSION) -> Mapping[str, str]:
    """Jar name -> SHA-256 in hex, of the list in this package, which is in the format of ``sha256sum``."""
    lines = (_SUMS / f"kafka-{version}.sha256").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def verify(libs: Path, sums: Mapping[str, str]) -> None:
    """Raise ChecksumMismatchError unless the folder holds exactly the pinned jars."""
    there = {path.name for path in libs.iterdir()} if libs.is_dir() else set()
    if there != set(sums):
        missing, foreign = sorted(set(sums) - there), sorted(there - set(sums))
        raise ChecksumMismatchError(f"{libs}: missing jars {missing}, files that are not pinned {foreign}")
    for name, digest in sums.items():
        with (libs / name).open("rb") as jar:
            found = hashlib.file_digest(jar, "sha256").hexdigest()
        if found != digest:
            raise ChecksumMismatchError(f"{libs / name}: its SHA-256 is {found}, but {digest} is pinned")


def _is_whole(folder: Path, sums: Mapping[str, str]) -> bool:
    if not folder.is_dir():
        return False
    try:
        verify(folder / "libs", sums)
    except ChecksumMismatchError as error:
        logger.warning("the Kafka in the cache is fetched again: %s", error)
        return False
    return True


def _fill_once(folder: Path, version: str, sums: Mapping[str, str]) -> None:
    with _locked(folder.with_name(folder.name + ".lock")):
        if not _is_whole(folder, sums):  # another process may have filled it while this one waited
            _fill(folder, version, sums)


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


def _fill(folder: Path, version: str, sums: Mapping[str, str]) -> None:
    """Fetch, verify, rename. Called under the lock."""
    logger.info("fetching Apache Kafka %s (25 to 55 MB, once) into %s", version, folder)
    with fetched("+".join(KAFKA_VERSIONS[version]), folder.parent) as came:
        libs = came / "whole" / "libs"
        jars = list(came.rglob("*.jar"))
        libs.mkdir(parents=True)
        for jar in jars:
            jar.rename(libs / jar.name)
        verify(libs, sums)
        shutil.rmtree(folder, ignore_errors=True)
        libs.parent.rename(folder)
    logger.info("Apache Kafka %s is there", version)
