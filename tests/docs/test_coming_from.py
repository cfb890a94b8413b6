"""The pages for users of other clients name what there is: in the installed peers, and here."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

import instride
import instride.assignors
from instride import Consumer, ConsumerConfig

FOLDER = Path(__file__).parents[2] / "docs" / "coming-from"
PAGES = ["confluent-kafka", "kafka-python", "aiokafka", "java"]
with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # kafka-python's own
    kafka: Any = importlib.import_module("kafka")
PEERS = {"confluent-kafka": confluent_kafka, "kafka-python": kafka, "aiokafka": aiokafka}


def rows(page: str, section: str) -> Iterator[list[str]]:
    """The cells of a section's table, without its head."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    body = re.split(r"^## ", text.partition(f"## {section}\n")[2], flags=re.MULTILINE)[0]
    table = [line for line in body.splitlines() if line.startswith("|")]
    for line in table[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def name(cell: str) -> str | None:
    """What a cell names; None for a cell that says that there is none."""
    if cell.startswith("none"):
        return None
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found, f"{cell!r} is neither a name nor none"
    return found[1]


def resolve(root: object, path: str) -> object:
    return reduce(getattr, path.split("."), root)


def confluent_knows(setting: str) -> bool:
    try:
        confluent_kafka.Consumer({"group.id": "g", setting: "?"})
    except confluent_kafka.KafkaException as error:
        return "No such configuration property" not in str(error)
    except TypeError:  # a callback that cannot be called: so it is known
        return True
    return True


KNOWN: dict[str, Callable[[str], bool]] = {
    "confluent-kafka": confluent_knows,
    "kafka-python": lambda setting: setting in kafka.KafkaConsumer.DEFAULT_CONFIG,
    "aiokafka": lambda setting: setting in inspect.signature(aiokafka.AIOKafkaConsumer).parameters,
}


@pytest.mark.requirement("surface/coming-from")
@pytest.mark.parametrize("page", PAGES)
def test_what_the_calls_are_named_here(page: str) -> None:
    for row in rows(page, "Calls"):
        ours = name(row[1])
        assert ours is None or resolve(instride, ours), row


@pytest.mark.parametrize("page", PAGES)
def test_what_the_settings_are_named_here(page: str) -> None:
    known = {field.name for field in fields(ConsumerConfig)}
    found = {name(row[1]) for row in rows(page, "Settings")} - {None}
    assert found
    assert found <= known


@pytest.mark.requirement("surface/coming-from")
@pytest.mark.parametrize("page", PEERS)
def test_what_the_calls_are_named_there(page: str) -> None:
    for row in rows(page, "Calls"):
        theirs = name(row[0])
        assert theirs is None or resolve(PEERS[page], theirs), row


@pytest.mark.parametrize("page", PEERS)
def test_what_the_settings_are_named_there(page: str) -> None:
    unknown = [row[0] for row in rows(page, "Settings") if (theirs := name(row[0])) and not KNOWN[page](theirs)]
    assert unknown == []


CONSUMERS: dict[str, Any] = {
    "confluent-kafka": confluent_kafka.Consumer,
    "kafka-python": kafka.KafkaConsumer,
    "aiokafka": aiokafka.AIOKafkaConsumer,
}


@pytest.mark.requirement("surface/coming-from")
@pytest.mark.parametrize("page", CONSUMERS)
def test_no_public_call_of_the_peer_is_passed_over(page: str) -> None:
    theirs = CONSUMERS[page]
    told = {name(row[0]) for row in rows(page, "Calls")}
    verbs = [verb for verb, _ in inspect.getmembers(theirs, callable) if not verb.startswith("_")]
    assert [verb for verb in verbs if f"{theirs.__name__}.{verb}" not in told] == []


@pytest.mark.requirement("surface/coming-from")
def test_no_call_of_ours_is_passed_over_on_javas_page() -> None:
    told = {name(row[1]) for row in rows("java", "Calls")}
    verbs = [verb for verb, _ in inspect.getmembers(Consumer, callable) if not verb.startswith("_")]
    assert [verb for verb in verbs if f"Consumer.{verb}" not in told] == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("section", ["Calls", "Settings"])
def test_nothing_is_told_twice(page: str, section: str) -> None:
    pairs = [tuple(row[:2]) for row in rows(page, section)]
    assert [each for each, count in Counter(pairs).items() if count > 1 and "none" not in each] == []
