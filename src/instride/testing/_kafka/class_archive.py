"""Kafka's classes as a JVM has them in memory, in a file (class data sharing, JEP 350): with it a broker is ready in
half the processor time.

Laws
1. It is made once for a version of Kafka and a Java, by a broker that ends in order, and stands beside the jars in the
   cache: whole or absent. For a ``KAFKA_HOME`` none is made, since that folder is the user's.
2. Nothing depends on it. A JVM that cannot use it loads the classes from the jars. What kept it from being made is
   logged, and this process does not try again.
3. While another process makes it, brokers start without.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from instride.errors import KafkaError
from instride.testing._kafka.java import Java
from instride.testing._kafka.kafka_home import KafkaHome

__all__ = ["archive_options", "making_options"]

logger = logging.getLogger(__name__)

_OWN: Final = ("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")
"""Who gives one of these options decides alone about archives."""
_failed: set[Path] = set()


def making_options(archive: Path) -> tuple[str, ...]:
    """Of the JVM that makes it, when it ends in order."""
    return (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off")


def archive_options(
    java: Java, home: KafkaHome, options: Sequence[str], make: Callable[[Path], None]
) -> tuple[str, ...]:
    """What a JVM of these options is to be given besides; nothing where there is no archive for it.

    make: runs a broker with `making_options` of that path to its end, where there is no archive yet.
    """
    if not home.version or any(option.startswith(_OWN) for option in options):
        return ()
    archive = home.folder.with_name(f"{_prefix(java, home)}{sha256(java.build.encode()).hexdigest()[:12]}.jsa")
    if not archive.is_file() and not _is_made(archive, java, home, make):
        return ()
    # The sum is looked at, since a JVM crashes by a file that the disk has damaged.
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", "-Xlog:cds=off")


def _prefix(java: Java, home: KafkaHome) -> str:
    return f"{home.folder.name}-java-{java.version}-"


def _is_made(archive: Path, java: Java, home: KafkaHome, make: Callable[[Path], None]) -> bool:
    if archive in _failed:
        return False
    began = archive.with_suffix(".new")
    try:
        with _alone(archive.with_suffix(".lock")) as is_alone:
            if not is_alone:
                return False
            if archive.is_file():  # another process has made it just now
                return True
            logger.info("Kafka %s is made ready for this Java, once: a few seconds", home.version)
            began.unlink(missing_ok=True)
            make(began)
            # Of a Java that was updated. One stays: two builds of it may be in use by turns.
            # Another process may delete them at the same time: each build has a lock of its own.
            for each in sorted(archive.parent.glob(f"{_prefix(java, home)}*.jsa"), key=_written_at)[:-1]:
                each.unlink(missing_ok=True)
            began.rename(archive)
    except (OSError, KafkaError) as error:
        _failed.add(archive)
        logger.info("brokers start without an archive of classes, which takes longer: %s", error)
        return False
    return True


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether this process has the file's lock. The system frees it when the process ends, however it ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
