"""The plugin in a pytest run of its own, as its users have it; the examples of docs/testing.md are such a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from instride import testing

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{cwd}"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def pytest_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Where the plugin is installed and the suite's conftest opts in."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text('pytest_plugins = ["pytest_instride"]\n')
    return run("-m", "pytest", "-q", "-p", "no:cacheprovider", *options, cwd=folder)


@pytest.mark.slow
@pytest.mark.kafka
def test_the_examples_of_the_manual(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    manual = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    done = pytest_run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(examples)} passed" in done.stdout
    assert len(examples) == 4


TOPICS = """
import pytest
from instride.errors import UnknownTopicOrPartitionError

class Kafka:
    def __init__(self):
        self.topics = set()

    def create_topic(self, name, partitions, configs):
        self.topics.add(name)
        if partitions > 1:
            raise TimeoutError

    def delete_topic(self, *names):
        gone = set(names) - self.topics
        self.topics -= set(names)
        if gone:
            raise UnknownTopicOrPartitionError(str(gone))

@pytest.fixture(scope="session")
def instride_kafka():
    kafka = Kafka()
    yield kafka
    assert not kafka.topics

def test_topics(instride_kafka, instride_kafka_topic):
    instride_kafka.delete_topic(instride_kafka_topic())
    instride_kafka_topic()
    with pytest.raises(TimeoutError):
        instride_kafka_topic(2)
"""


def test_a_topic_is_deleted_whatever_became_of_it(tmp_path: Path) -> None:
    """A test that deletes its topic itself ended with an error; what a call that failed had made stayed for ever."""
    (tmp_path / "test_topics.py").write_text(TOPICS)
    done = pytest_run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


STUBBORN = """
import pytest

class Kafka:
    def __init__(self):
        self.topics = []

    def create_topic(self, name, partitions, configs):
        self.topics.append(name)

    def delete_topic(self, name):
        self.topics.remove(name)
        raise OSError(f"no broker to delete {name}")

@pytest.fixture(scope="session")
def instride_kafka():
    kafka = Kafka()
    yield kafka
    print("left:", kafka.topics)

def test_topics(instride_kafka_topic):
    instride_kafka_topic()
    instride_kafka_topic()
"""


def test_a_topic_that_cannot_be_deleted_keeps_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "test_topics.py").write_text(STUBBORN)
    done = pytest_run(tmp_path, "-s")
    assert "no broker to delete" in done.stdout
    assert "left: []" in done.stdout


def test_the_fixtures_are_offered_with_their_purpose(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    done = pytest_run(tmp_path, "--fixtures")
    for name in ("instride_kafka ", "instride_kafka_topic", "instride_kafka_cluster"):
        assert re.search(rf"^{name}.*\n    \S", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("options", [(), ("-p", "pytest_instride")])
def test_it_may_be_named_besides(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    done = pytest_run(tmp_path, *options)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_suite_that_does_not_opt_in_is_left_alone() -> None:
    """Without an entry point pytest loads nothing of instride in a suite that does not name the plugin."""
    assert "entry-points" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_a_run_without_kafka_pays_nothing(tmp_path: Path) -> None:
    """Loading the plugin loads nothing of instride, so it also hides none of it from coverage."""
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport pytest_instride\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = run("-c", code, cwd=tmp_path)
    assert done.stdout.split() == ["pytest_instride"], done.stdout + done.stderr


def test_the_public_names_are_there() -> None:
    classes = [name for name in testing.__all__ if name != "KAFKA_VERSIONS"]
    assert [getattr(testing, name).__name__ for name in classes] == classes
    assert "4.3.1" in testing.KAFKA_VERSIONS
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from instride.testing import Nothing  # noqa: F401
