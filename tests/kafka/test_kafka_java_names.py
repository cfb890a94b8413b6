"""The page for users of the Java client leaves nothing out: the client's own classes are asked what there is."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path

import pytest

import instride
from instride import ConsumerConfig
from instride.testing import find_java, find_kafka

PAGE = Path(__file__).parents[2] / "docs" / "coming-from" / "java.md"
HERE = Path(__file__).parent
OURS = {
    "KafkaConsumer": "Consumer",
    "ConsumerRebalanceListener": "RebalanceListener",
    "ConsumerGroupMetadata": "GroupMetadata",
}
"""What a class is called here, where it is called otherwise."""
OF_EVERY_OBJECT = {"equals", "hashCode", "toString"}


@pytest.fixture(scope="module")
def there() -> dict[str, set[str]]:
    """Class -> its methods; "" -> the settings."""
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-cp", find_kafka().class_path]
    output = subprocess.run([*command, str(HERE / "java" / "Names.java")], capture_output=True, text=True, check=True)
    found = defaultdict(set)
    for line in output.stdout.splitlines():
        match line.split():
            case ["setting", name]:
                found[""].add(name)
            case ["method", kind, name]:
                found[kind].add(name)
    return found


def told(section: str) -> list[str]:
    """What stands in a table's first column, in backticks."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [name for line in lines[2:] for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


@pytest.mark.requirement("surface/java-names")
def test_every_setting_is_here_or_is_told_of(there: dict[str, set[str]]) -> None:
    known, page = {field.name for field in fields(ConsumerConfig)}, told("Settings")
    here = {name for name in there[""] if name.replace(".", "_").removesuffix("_ms") in known}
    assert len(here) > 20
    silent = {name for name in there[""] - here if not any(fnmatch(name, pattern) for pattern in page)}
    assert silent == set()
    unknown = [pattern for pattern in page if not any(fnmatch(name, pattern) for name in there[""])]
    assert unknown == [], "there is no such setting there"


@pytest.mark.requirement("surface/java-names")
def test_every_method_is_here_or_is_told_of(there: dict[str, set[str]]) -> None:
    page = {name.partition("(")[0] for name in told("Calls") if "(" in name}
    silent, shown = set(), set()
    for kind, methods in there.items():
        ours = getattr(instride, OURS.get(kind, kind), None)
        for name in methods - OF_EVERY_OBJECT if kind else ():
            plain = name if kind == "KafkaConsumer" else f"{kind}.{name}"
            shown.add(plain)
            if plain not in page and not hasattr(ours, snake(name)):
                silent.add(plain)
    assert silent == set()
    assert page <= shown, "there is no such method there"
