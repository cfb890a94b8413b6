"""KAFKA_HOME, the cache, its checksums, its lock: on a small Kafka of three jars, fetched by a jgo of our own."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from instride.errors import ChecksumMismatchError, ConfigError, KafkaNotFoundError
from instride.testing import LocalKafka, find_kafka
from instride.testing._kafka import kafka_home

JARS = {"kafka-clients-4.3.1.jar": b"one", "kafka_2.13-4.3.1.jar": b"two", "slf4j-simple.jar": b"three"}
FOLDER = "kafka-4.3.1"

# As far as a fetch needs it: writes the jars where jgo would, leaves a trace, and can be told to fail, falsify or hang.
JGO = """
import os, pathlib, sys, time
def build(endpoint, cache_dir):
    assert "org.apache.kafka:kafka_2.13:4.3.1" in endpoint, endpoint
    assert os.environ["M2_REPO"].startswith(str(cache_dir.parent))
    with open(TRACE, "a") as out:
        out.write(f"{os.getpid()}\\n")
    if MODE == "fail":
        sys.exit("no route to host")
    time.sleep({"hang": 600, "slow": 0.5}.get(MODE, 0))
    for name, content in JARS.items():
        jar = cache_dir / "envs" / ("jars" if "kafka" in name else "modules") / name
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(content + (b"!" if MODE == "falsify" else b""))
"""


class World:
    """A cache of its own, sums of its own, and a stand-in for jgo."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache" / "instride"
        self.sums = folder
        (folder / f"{FOLDER}.sha256").write_text(
            "".join(f"{hashlib.sha256(v).hexdigest()}  {k}\n" for k, v in JARS.items())
        )
        self.trace = folder / "trace"
        self.module = folder / "modules" / "jgo.py"
        self.module.parent.mkdir()
        self.jgo("good")

    def jgo(self, mode: str) -> None:
        self.module.write_text(f"JARS, MODE, TRACE = {JARS!r}, {mode!r}, {str(self.trace)!r}\n{JGO}")

    @property
    def fetches(self) -> list[int]:
        """The process ids of the fetches so far."""
        return [int(line) for line in self.trace.read_text().split()] if self.trace.exists() else []

    def finder(self) -> subprocess.Popen[str]:
        """Another process that looks for Kafka in this world."""
        code = (
            "import pathlib; from instride.testing._kafka import kafka_home\n"
            f"kafka_home._SUMS = pathlib.Path({str(self.sums)!r})\n"
            "print(kafka_home.find_kafka().folder)"
        )
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.cache.parent))
    source = str(Path(kafka_home.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(made.module.parent), source)))
    # A cached jgo is told from another one by its size and the second in which it was written.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(kafka_home, "_SUMS", made.sums)
    return made


def test_the_first_use_fetches_and_the_second_does_not(world: World) -> None:
    home = find_kafka()
    assert home.folder == world.cache / FOLDER
    assert home.version == "4.3.1"
    assert home.class_path == str(world.cache / FOLDER / "libs" / "*")
    assert {jar.name: jar.read_bytes() for jar in (home.folder / "libs").iterdir()} == JARS
    assert find_kafka() == home
    assert len(world.fetches) == 1


def test_the_fetch_leaves_only_the_cache_and_its_lock(world: World) -> None:
    find_kafka()
    assert {path.name for path in world.cache.iterdir()} == {FOLDER, f"{FOLDER}.lock"}


def test_a_jar_of_another_checksum_is_refused(world: World) -> None:
    world.jgo("falsify")
    with pytest.raises(ChecksumMismatchError, match=r"\.jar: its SHA-256 is .* is pinned"):
        find_kafka()
    assert {path.name for path in world.cache.iterdir()} == {f"{FOLDER}.lock"}


@pytest.mark.parametrize("harm", ["changed", "missing", "foreign"])
def test_a_harmed_cache_is_fetched_again(world: World, harm: str) -> None:
    libs = find_kafka().folder / "libs"
    if harm == "changed":
        (libs / "slf4j-simple.jar").write_bytes(b"other")
    elif harm == "missing":
        (libs / "slf4j-simple.jar").unlink()
    else:
        (libs / "agent.jar").write_bytes(b"foreign")
    assert find_kafka().folder == libs.parent
    assert {jar.name: jar.read_bytes() for jar in libs.iterdir()} == JARS
    assert len(world.fetches) == 2


def test_a_failed_fetch_says_what_jgo_said(world: World) -> None:
    world.jgo("fail")
    with pytest.raises(KafkaNotFoundError, match=r"KAFKA_HOME may name one .* no route to host"):
        find_kafka()
    assert {path.name for path in world.cache.iterdir()} == {f"{FOLDER}.lock"}


def test_without_jgo_the_error_says_how_to_get_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instride.testing._kafka.fetching.find_spec", lambda name: None)
    with pytest.raises(KafkaNotFoundError, match=r'KAFKA_HOME .* pip install "instride\[testing\]"'):
        find_kafka()
    assert world.fetches == []


def test_a_cache_that_cannot_be_written_is_told(world: World) -> None:
    world.cache.parent.write_text("a file where the folder should be")
    with pytest.raises(KafkaNotFoundError, match=r"cannot be put into the cache .* XDG_CACHE_HOME"):
        find_kafka()


def test_two_processes_at_once_fetch_once(world: World) -> None:
    world.jgo("slow")
    finders = [world.finder() for _ in range(2)]
    assert [each.communicate()[0].strip() for each in finders] == [str(world.cache / FOLDER)] * 2
    assert len(world.fetches) == 1


def test_a_killed_process_leaves_no_fetch_and_no_file(
    world: World, eventually: Callable[[Callable[[], bool]], None], is_alive: Callable[[int], bool]
) -> None:
    world.jgo("hang")
    with world.finder() as finder:
        eventually(lambda: bool(world.fetches))
        finder.send_signal(signal.SIGKILL)
    fetch = world.fetches[0]
    eventually(lambda: not is_alive(fetch) and not list(world.cache.glob("instride-*")))
    world.jgo("good")
    find_kafka()


def test_kafka_home_is_used_as_it_is(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "libs").mkdir(parents=True)
    (tmp_path / "mine" / "libs" / "kafka-clients-3.9.1.jar").write_bytes(b"mine")
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "mine"))
    home = find_kafka()
    assert (home.folder, home.version) == (tmp_path / "mine", "")
    assert world.fetches == []


def test_a_version_that_is_requested_is_not_taken_from_kafka_home(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "nothing"))
    assert find_kafka("4.3.1").folder == world.cache / FOLDER


def test_a_version_that_is_not_pinned_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match=r"'2\.7\.0' .* known: 2\.8\.2, 3\.9\.1, 4\.3\.1"):
        find_kafka("2.7.0")
    with pytest.raises(ConfigError, match="not pinned"):
        LocalKafka(version="2.7.0")
    assert world.fetches == []


def test_a_kafka_home_without_kafka_is_an_error(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(KafkaNotFoundError, match=r"KAFKA_HOME is .*nothing, but there is no libs/kafka-clients"):
        find_kafka()
    assert world.fetches == []


@pytest.mark.parametrize("version", list(kafka_home.KAFKA_VERSIONS))
def test_the_lists_that_are_shipped_name_kafka_whole(version: str) -> None:
    sums = kafka_home.pinned_sums(version)
    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar", "slf4j-simple-1.7.36.jar"} <= set(sums)
    assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in sums.values())
