"""The archive of Kafka's classes: made once, beside the jars. Without it, or with a damaged one, brokers start."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instride.errors import LocalKafkaError
from instride.testing import LocalKafka, find_kafka
from instride.testing._kafka.class_archive import archive_options, making_options
from instride.testing._kafka.java import Java
from instride.testing._kafka.jvm import QUICK_JVM
from instride.testing._kafka.kafka_home import KAFKA_VERSION, KafkaHome

JAVA = Java(path=Path("java"), version=17, source="test", build="17.0.15+6")


@pytest.fixture
def home(tmp_path: Path) -> KafkaHome:
    return KafkaHome(folder=tmp_path / "kafka-4.3.1", version="4.3.1")


class Maker:
    """Writes an archive as a JVM would, and counts."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.made = 0
        self._fails = fails

    def __call__(self, archive: Path) -> None:
        self.made += 1
        if self._fails is not None:
            raise self._fails
        archive.write_bytes(b"classes")


def archive_of(options: tuple[str, ...]) -> Path:
    return Path(options[0].removeprefix("-XX:SharedArchiveFile="))


def test_it_is_made_once_and_stands_beside_the_jars(home: KafkaHome) -> None:
    make = Maker()
    first, second = (archive_options(JAVA, home, QUICK_JVM, make) for _ in range(2))
    assert first == second
    assert make.made == 1
    assert archive_of(first).parent == home.folder.parent
    assert archive_of(first).read_bytes() == b"classes"


def test_the_users_own_kafka_and_own_options_are_left_alone(tmp_path: Path, home: KafkaHome) -> None:
    make = Maker()
    assert archive_options(JAVA, KafkaHome(folder=tmp_path), QUICK_JVM, make) == ()
    for own in (("-Xshare:off",), ("-XX:SharedArchiveFile=mine",), making_options(tmp_path / "new")):
        assert archive_options(JAVA, home, own, make) == ()
    assert make.made == 0


@pytest.mark.parametrize("fails", [LocalKafkaError("it ended"), OSError(28, "No space left on device")])
def test_what_cannot_be_made_is_not_tried_again(home: KafkaHome, fails: Exception) -> None:
    make = Maker(fails)
    assert [archive_options(JAVA, home, QUICK_JVM, make) for _ in range(2)] == [(), ()]
    assert make.made == 1


def test_a_jvm_that_left_nothing_is_no_archive(home: KafkaHome) -> None:
    assert archive_options(JAVA, home, QUICK_JVM, lambda archive: None) == ()


def test_while_another_process_makes_it_nobody_waits(home: KafkaHome) -> None:
    make = Maker()
    archive = archive_of(archive_options(JAVA, home, QUICK_JVM, make))
    archive.unlink()
    with archive.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert archive_options(JAVA, home, QUICK_JVM, make) == ()
    assert archive_of(archive_options(JAVA, home, QUICK_JVM, make)) == archive
    assert make.made == 2


def test_an_updated_java_replaces_its_own_archive_only(home: KafkaHome) -> None:
    def of(version: int, build: str, kafka: KafkaHome) -> Path:
        java = Java(path=Path("java"), version=version, source="test", build=build)
        return archive_of(archive_options(java, kafka, QUICK_JVM, Maker()))

    older_kafka = KafkaHome(folder=home.folder.with_name("kafka-3.9.1"), version="3.9.1")
    kept = [of(17, "17.0.15", older_kafka), of(21, "21.0.1", home)]
    builds = [of(17, f"17.0.{number}", home) for number in (15, 16)]
    for age, each in enumerate(builds):
        os.utime(each, (age, age))
    assert all(each.is_file() for each in builds), "two builds of one Java that are in use by turns"
    newest = of(17, "17.0.17", home)
    assert not builds[0].exists()
    assert all(each.is_file() for each in [*kept, builds[1], newest])


@pytest.mark.parametrize("verb", ["stat", "unlink"])
def test_another_process_may_delete_the_same_archives(
    home: KafkaHome, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """No archive was made then, and this process did not try again: each build has a lock of its own."""
    own, own_unlink, ours = getattr(Path, verb), Path.unlink, Maker()
    home.folder.with_name(f"{home.folder.name}-java-17-earlier.jsa").write_bytes(b"classes")
    home.folder.with_name(f"{home.folder.name}-java-17-earliest.jsa").write_bytes(b"classes")

    def late(path: Path, **options: Any) -> Any:
        if "-java-17-earl" in path.name:
            own_unlink(path)
        return own(path, **options)

    def make(archive: Path) -> None:
        ours(archive)
        monkeypatch.setattr(Path, verb, late)

    made = archive_of(archive_options(JAVA, home, QUICK_JVM, make))
    monkeypatch.undo()
    assert made.read_bytes() == b"classes"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of the machine's cache, and no archive yet."""
    jars = find_kafka(KAFKA_VERSION).folder / "libs"
    libs = tmp_path / "cache" / "instride" / f"kafka-{KAFKA_VERSION}" / "libs"
    libs.mkdir(parents=True)
    copy: Callable[..., object] = os.link if jars.stat().st_dev == libs.stat().st_dev else os.symlink
    for jar in jars.iterdir():
        copy(jar, libs / jar.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return libs.parent.parent


@pytest.mark.slow
def test_a_broker_takes_its_classes_from_it_and_starts_with_a_damaged_one(own_cache: Path, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    options = (*QUICK_JVM, f"-Xlog:class+load:file={loaded}:none")

    def from_archive() -> int:
        with LocalKafka(version=KAFKA_VERSION, jvm_options=options):
            lines = loaded.read_text().splitlines()
        loaded.unlink()
        return sum(line.startswith(("kafka.", "org.apache.kafka.")) and "shared objects" in line for line in lines)

    assert from_archive() > 1_000
    (archive,) = own_cache.glob("*.jsa")
    damaged = bytearray(archive.read_bytes())
    damaged[len(damaged) // 2 :: 4096] = bytes(len(damaged[len(damaged) // 2 :: 4096]))
    archive.chmod(0o600)
    archive.write_bytes(damaged)
    assert from_archive() == 0
