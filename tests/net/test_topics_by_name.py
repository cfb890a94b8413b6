"""`list_topics` of topics by name: one request, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from attack.broker import Broker, Request
from attack.bytes_of import text
from instride import AsyncConsumer, Consumer, PartitionInfo, RangeConsumer
from instride.errors import InvalidTopicError

PATIENCE = 60.0


class Named(Broker):
    """Keeps t, u and an internal topic, each like "t". asked: of which topics; the cluster's refresh asks of none."""

    internal = "__consumer_offsets"

    def __init__(self) -> None:
        self.asked: list[list[str] | None] = []
        super().__init__()

    def metadata(self, request: Request) -> bytes:
        topics = request["topics"]
        if topics != []:
            self.asked.append(None if topics is None else [each["name"] for each in topics])
        return super().metadata(request)

    def topic_entry(self, topic: str) -> bytes:
        if topic == "no name":
            return super().topic_entry("x").replace(b"\0\x03", b"\0\x11", 1).replace(text("x"), text(topic), 1)
        if topic not in ("t", "u", self.internal):
            return super().topic_entry(topic)
        is_internal = b"\1" if topic == self.internal else b"\0"
        return super().topic_entry("t").replace(text("t") + b"\0", text(topic) + is_internal, 1)


@pytest.fixture
def broker() -> Iterator[Named]:
    made = Named()
    yield made
    made.close()


@pytest.fixture(params=[Consumer, RangeConsumer, AsyncConsumer])
def listed(request: pytest.FixtureRequest, broker: Named) -> Any:
    """`list_topics` of a consumer, which is open for one call."""

    def ask(*arguments: Any, **named: Any) -> dict[str, list[PartitionInfo]]:
        settings = {"bootstrap_servers": f"127.0.0.1:{broker.port}"}
        if request.param is AsyncConsumer:
            return asyncio.run(asked_by_async(settings, *arguments, **named))
        with request.param(**settings) as consumer:
            found: dict[str, list[PartitionInfo]] = consumer.list_topics(*arguments, timeout=PATIENCE, **named)
            return found

    return ask


async def asked_by_async(settings: Any, *arguments: Any, **named: Any) -> dict[str, list[PartitionInfo]]:
    async with AsyncConsumer(**settings) as consumer:
        return await consumer.list_topics(*arguments, timeout=PATIENCE, **named)


def test_several_topics_are_one_request(listed: Any, broker: Named) -> None:
    """Each was one by itself. What does not exist is left out, and an internal one that is named is not."""
    found = listed(["u", "t", "nowhere", "t", broker.internal])
    assert {name: [each.partition for each in infos] for name, infos in found.items()} == {
        "__consumer_offsets": [0, 1, 2],
        "t": [0, 1, 2],
        "u": [0, 1, 2],
    }
    assert {each.topic for each in found["u"]} == {"u"}
    assert broker.asked == [["u", "t", "nowhere", broker.internal]]


def test_of_no_names_nobody_is_asked_and_without_them_all_are_listed(listed: Any, broker: Named) -> None:
    assert listed([]) == {}
    assert broker.asked == []
    assert list(listed(frozenset({"u"}))) == ["u"]
    assert list(listed()) == ["t"], "it says no more of itself"
    assert broker.asked == [["u"], None]


@pytest.mark.parametrize("kind", [Consumer, RangeConsumer])
def test_a_list_of_no_topics_needs_no_network(kind: Any) -> None:
    with kind(bootstrap_servers="127.0.0.1:1") as consumer:
        assert consumer.list_topics([]) == {}
        assert not consumer._driver.started


def test_a_name_that_no_topic_can_have_is_an_error_beside_others(listed: Any) -> None:
    with pytest.raises(InvalidTopicError, match="no name"):
        listed(["t", "no name"])


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ("t", TypeError, "list of topics"),
        (5, TypeError, "list of topics"),
        ([b"t"], TypeError, r"topic.decode\(\)"),
        ([""], ValueError, "empty"),
        (["\ud800"], ValueError, "surrogate"),
    ],
)
def test_a_wrong_name_is_refused(listed: Any, broker: Named, given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=rf"list_topics.*{told}"):
        listed(given)
    assert broker.asked == []
