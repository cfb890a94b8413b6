"""Wrong and right arguments of every verb, as users of other clients write them: clear errors, or the same as here."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import numpy
import pytest

from instride import (
    CommitEntry,
    CommitSnapshot,
    Consumer,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetLedger,
    RangeConsumer,
    RebalanceListener,
    TopicPartition,
)
from instride._core.events import Commit, FetchCommitted, SetPosition
from instride.errors import WakeupError

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
TEXTUAL: Any = TopicPartition("t", "0")  # type: ignore[arg-type]
HALF = "\ud800"
TOO_LONG = "x" * 32_766 + "\u00fc"  # 32,767 characters, and a byte more
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
ENTRY = CommitEntry(offset=1, epoch=1, seek_number=0)


@dataclass(frozen=True, slots=True)
class Wrong:
    """error: its kind; says: what its message must contain, the verb first."""

    call: Callable[[Any], object]
    error: type[Exception]
    says: tuple[str, ...]


def wrong(call: Callable[[Any], object], error: type[Exception], *says: str) -> Wrong:
    return Wrong(call, error, says)


def entry(**fields: Any) -> Callable[[Any], object]:
    """To commit a snapshot whose entry has these."""
    return lambda consumer: consumer.commit(CommitSnapshot({TP: replace(ENTRY, **fields)}))


WRONG: dict[str, Wrong] = {
    # one partition
    "position of a list": wrong(lambda c: c.position([TP]), TypeError, "position", "TopicPartition(", "list"),
    "position of a topic": wrong(lambda c: c.position("t"), TypeError, "position", "TopicPartition(", "'t'"),
    "position of None": wrong(lambda c: c.position(None), TypeError, "position", "TopicPartition(", "None"),
    "lag of a list": wrong(lambda c: c.lag([TP]), TypeError, "lag", "TopicPartition("),
    "revoke_deadline of a set": wrong(lambda c: c.revoke_deadline({TP}), TypeError, "revoke_deadline", "Topic"),
    "a topic of bytes": wrong(lambda c: c.lag((b"t", 0)), TypeError, "lag", "(b't', 0)"),
    "an empty topic": wrong(lambda c: c.lag(("", 0)), ValueError, "lag", "empty"),
    "a number as text": wrong(lambda c: c.lag(("t", "0")), TypeError, "lag", "whole number", "'0'"),
    "a number as text, of records": wrong(
        lambda _: ConsumerRecords().records(TEXTUAL), TypeError, "records", "whole number", "'0'"
    ),
    "a number as text, in a ledger": wrong(
        lambda _: OffsetLedger().in_progress(TEXTUAL), TypeError, "in_progress", "'0'"
    ),
    "a number as text, of the oldest": wrong(lambda _: OffsetLedger().oldest(TEXTUAL), TypeError, "oldest", "'0'"),
    "a number as truth": wrong(lambda c: c.lag(("t", True)), TypeError, "lag", "whole number", "True"),
    "a negative number": wrong(lambda c: c.lag(("t", -1)), ValueError, "lag", "0 or more", "-1"),
    "what is not assigned": wrong(lambda c: c.lag(OTHER), ValueError, "t-1", "not assigned"),
    "librdkafka's partition": wrong(
        lambda c: c.seek(confluent_kafka.TopicPartition("t", 0, 5), 5), TypeError, "seek", "TopicPartition(it.topic"
    ),
    # several
    "assign a topic": wrong(lambda c: c.assign("topic"), TypeError, "assign", "[TopicPartition(", "'topic'"),
    "assign a list of topics": wrong(lambda c: c.assign(["t"]), TypeError, "assign", "TopicPartition(", "'t'"),
    "assign one": wrong(lambda c: c.assign(TP), TypeError, "assign([TopicPartition("),
    "assign None": wrong(lambda c: c.assign(None), TypeError, "assign", "iterable", "None"),
    "delay_revoke of one": wrong(lambda c: c.delay_revoke(TP), TypeError, "delay_revoke([TopicPartition("),
    "delay_revoke of what nobody requested": wrong(lambda c: c.delay_revoke([TP]), ValueError, "delay_revoke", "t-0"),
    "beginning_offsets of one": wrong(lambda c: c.beginning_offsets(TP), TypeError, "beginning_offsets([TopicPart"),
    "end_offsets of a topic": wrong(lambda c: c.end_offsets("t"), TypeError, "end_offsets", "[TopicPartition("),
    "pause a topic": wrong(lambda c: c.pause("t"), TypeError, "pause", "TopicPartition("),
    "pause a topic and a number": wrong(lambda c: c.pause("t", 0), TypeError, "pause", "TopicPartition("),
    "resume None": wrong(lambda c: c.resume(None), TypeError, "resume", "TopicPartition("),
    "committed of a topic": wrong(lambda c: c.committed("t"), TypeError, "committed", "TopicPartition("),
    "seek_to_end of topics": wrong(lambda c: c.seek_to_end(["t"]), TypeError, "seek_to_end", "TopicPartition("),
    # offsets
    "seek a topic": wrong(lambda c: c.seek("topic", 0), TypeError, "seek", "TopicPartition("),
    "seek to None": wrong(lambda c: c.seek(TP, None), TypeError, "seek", "offset", "None"),
    "seek to a text": wrong(lambda c: c.seek(TP, "beginning"), TypeError, "seek", "offset", "'beginning'"),
    "seek to a fraction": wrong(lambda c: c.seek(TP, 1.0), TypeError, "seek", "offset", "1.0"),
    "seek to a negative one": wrong(lambda c: c.seek(TP, -2), ValueError, "seek", "offset", "-2"),
    "seek beyond all": wrong(lambda c: c.seek(TP, 1 << 63), ValueError, "seek", "offset", "2**63"),
    "seek to a wrong epoch": wrong(
        lambda c: c.seek(TP, OffsetAndMetadata(offset=1, leader_epoch=-5)), ValueError, "seek", "leader epoch", "-5"
    ),
    "commit an offset alone": wrong(lambda c: c.commit(5), TypeError, "commit", "record.offset + 1", "5"),
    "commit a list": wrong(lambda c: c.commit([TP]), TypeError, "commit", "record.topic_partition"),
    "commit a negative one": wrong(lambda c: c.commit({TP: -1}), ValueError, "commit", "t-0", "-1"),
    "commit None": wrong(lambda c: c.commit({TP: None}), TypeError, "commit", "t-0", "None"),
    "commit metadata of bytes": wrong(
        lambda c: c.commit({TP: OffsetAndMetadata(offset=1, metadata=b"m")}),  # type: ignore[arg-type]
        TypeError,
        "commit",
        "metadata",
        "text",
    ),
    "commit_async by topic": wrong(lambda c: c.commit_async({"t": 1}), TypeError, "commit", "TopicPartition("),
    # times
    "a datetime": wrong(
        lambda c: c.offsets_for_times({TP: WHEN}), TypeError, "offsets_for_times", "t-0", "int(time.timestamp() * 1000)"
    ),
    "seconds since 1970": wrong(
        lambda c: c.offsets_for_times({TP: 1.7e9}), TypeError, "offsets_for_times", "t-0", "int(seconds * 1000)"
    ),
    "Kafka's number for an end": wrong(
        lambda c: c.offsets_for_times({TP: -1}), ValueError, "offsets_for_times", "t-0", "end_offsets"
    ),
    "a time of no partition": wrong(lambda c: c.offsets_for_times(1), TypeError, "offsets_for_times", "milliseconds"),
    # time-outs
    "confluent's poll": wrong(lambda c: c.poll(1.0), TypeError, "poll(timeout=1.0)", "seconds", "given 1.0"),
    "kafka-python's poll": wrong(lambda c: c.poll(500), TypeError, "poll(timeout=1.0)", "seconds", "given 500"),
    "a negative time-out": wrong(lambda c: c.poll(timeout=-1), ValueError, "poll", "timeout", "leave it out"),
    "a time-out that is no number": wrong(lambda c: c.committed(TP, timeout=math.nan), ValueError, "committed", "nan"),
    "a time-out as text": wrong(lambda c: c.position(TP, timeout="5"), TypeError, "position", "seconds", "'5'"),
    "a time-out as duration": wrong(
        lambda c: c.unsubscribe(timeout=timedelta(seconds=1)), TypeError, "unsubscribe", "timeout.total_seconds()"
    ),
    "no time-out of close": wrong(lambda c: c.close(timeout=None), TypeError, "close", "seconds", "None"),
    # topics
    "subscribe a topic": wrong(lambda c: c.subscribe("topic"), TypeError, "subscribe", "list of topics", "'topic'"),
    "subscribe bytes": wrong(lambda c: c.subscribe([b"t"]), TypeError, "subscribe", "text", "b't'"),
    "subscribe a number": wrong(lambda c: c.subscribe(5), TypeError, "subscribe", "list of topics", "5"),
    "subscribe partitions": wrong(lambda c: c.subscribe([TP]), TypeError, "subscribe", "assign"),
    "subscribe nothing": wrong(lambda c: c.subscribe([]), ValueError, "subscribe", "unsubscribe"),
    "subscribe None": wrong(lambda c: c.subscribe(None), TypeError, "subscribe", "topics", "pattern="),
    "a pattern of bytes": wrong(lambda c: c.subscribe(pattern=b"t"), TypeError, "subscribe", "pattern", "b't'"),
    "a listener's class": wrong(
        lambda c: c.subscribe(["t"], listener=RebalanceListener), TypeError, "subscribe", "listener=RebalanceListener()"
    ),
    "a function as listener": wrong(lambda c: c.subscribe(["t"], listener=print), TypeError, "subscribe", "listener"),
    "partitions of bytes": wrong(lambda c: c.partitions_for(b"t"), TypeError, "partitions_for", "topic.decode()"),
    "partitions of no topic": wrong(lambda c: c.partitions_for(""), ValueError, "partitions_for", "topic", "empty"),
    # texts that the protocol cannot carry: a broker ends the connection over one, again at each attempt
    "a topic of half a surrogate": wrong(lambda c: c.lag((HALF, 0)), ValueError, "lag", "topic", "surrogate"),
    "a topic too long to send": wrong(lambda c: c.assign([(TOO_LONG, 0)]), ValueError, "assign", "topic", "32767"),
    "subscribe half a surrogate": wrong(lambda c: c.subscribe([HALF]), ValueError, "subscribe", "surrogate"),
    "subscribe what is too long": wrong(lambda c: c.subscribe([TOO_LONG]), ValueError, "subscribe", "32767"),
    "partitions of half a surrogate": wrong(lambda c: c.partitions_for(HALF), ValueError, "partitions_for", "surrog"),
    "partitions of what is too long": wrong(
        lambda c: c.partitions_for(TOO_LONG), ValueError, "partitions_for", "32767"
    ),
    "a reason of half a surrogate": wrong(
        lambda c: c.enforce_rebalance(HALF), ValueError, "enforce_rebalance", "reason"
    ),
    "metadata of half a surrogate": wrong(
        lambda c: c.commit({TP: OffsetAndMetadata(offset=1, metadata=HALF)}), ValueError, "commit", "t-0", "surrogate"
    ),
    "metadata too long to send": wrong(
        lambda c: c.commit_async({TP: OffsetAndMetadata(offset=1, metadata=TOO_LONG)}), ValueError, "t-0", "32768 bytes"
    ),
    "a snapshot's metadata": wrong(
        lambda c: c.commit(CommitSnapshot({TP: CommitEntry(offset=1, epoch=1, seek_number=0, metadata=TOO_LONG)})),
        ValueError,
        "commit",
        "t-0",
        "32768 bytes",
    ),
    "a snapshot of another's partitions": wrong(
        lambda c: c.commit(CommitSnapshot({"t-0": ENTRY})),  # type: ignore[dict-item]
        TypeError,
        "commit",
        "TopicPartition(",
        "'t-0'",
    ),
    "a snapshot of a partition's number as text": wrong(
        lambda c: c.commit(CommitSnapshot({("t", "0"): ENTRY})),  # type: ignore[dict-item]
        TypeError,
        "commit",
        "whole number",
        "'0'",
    ),
    "a snapshot of offsets": wrong(
        lambda c: c.commit_async(CommitSnapshot({TP: OffsetAndMetadata(offset=1)})),  # type: ignore[dict-item]
        TypeError,
        "commit",
        "t-0",
        "CommitEntry",
        "OffsetAndMetadata",
        "dictionary",
    ),
    "a snapshot's offset as text": wrong(entry(offset="5"), TypeError, "commit", "the offset of t-0", "'5'"),
    "a snapshot's negative offset": wrong(entry(offset=-1), ValueError, "commit", "the offset of t-0", "-1"),
    "a snapshot's offset beyond all": wrong(entry(offset=1 << 63), ValueError, "commit", "t-0", "2**63"),
    "a snapshot's leader epoch": wrong(entry(leader_epoch=-5), ValueError, "commit", "leader epoch", "t-0", "-5"),
    "a snapshot's leader epoch as text": wrong(entry(leader_epoch="5"), ValueError, "commit", "leader epoch", "'5'"),
    "a snapshot without metadata": wrong(entry(metadata=None), TypeError, "commit", "metadata", "t-0", "None"),
    "a snapshot's metadata of bytes": wrong(entry(metadata=b""), TypeError, "commit", "metadata", "t-0", "b''"),
    "a snapshot's epoch as text": wrong(entry(epoch="1"), TypeError, "commit", "the epoch of t-0", "'1'"),
    "a snapshot's seek number": wrong(entry(seek_number=None), TypeError, "commit", "the seek number of t-0", "None"),
    "a reason that is no text": wrong(lambda c: c.enforce_rebalance(5), TypeError, "enforce_rebalance", "reason", "5"),
}


@pytest.fixture
def server() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.fixture(params=[Consumer, RangeConsumer])
def consumer(request: pytest.FixtureRequest, server: str) -> Iterator[Any]:
    with request.param(bootstrap_servers=server, group_id="g", default_api_timeout=0.05) as made:
        made.assign([TP])
        yield made
        made.close(timeout=0)


@pytest.mark.requirement("surface/arguments")
@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_with_what_to_write_instead(consumer: Any, row: Wrong) -> None:
    with pytest.raises(row.error) as caught:
        row.call(consumer)
    message = str(caught.value)
    assert [part for part in row.says if part not in message] == [], message
    assert consumer.assignment() == {TP}, "nothing was changed"


@pytest.mark.requirement("surface/arguments")
@pytest.mark.parametrize("kind", [Consumer, RangeConsumer])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bootstrap.servers": "localhost:9092", "group.id": "g"}, "spread with **"),
        ("my-topic", "subscribe(['my-topic'])"),
        ("SASL_SSL://user:canary@h:1", "subscribe(['flights'])"),
        ([("sasl.password", "canary")], "subscribe(['flights'])"),
        ({"sasl.password": "canary"}.items(), "subscribe(['flights'])"),
    ],
)
def test_settings_by_position_as_other_clients_take_them_are_told_how_to_write_them(
    kind: Any, given: object, says: str
) -> None:
    with pytest.raises(TypeError) as caught:
        kind(given)
    assert f'{kind.__name__}(bootstrap_servers="localhost:9092"' in str(caught.value)
    assert says in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.requirement("surface/arguments")
def test_how_many_at_most_is_a_number(server: str) -> None:
    kinds: tuple[tuple[Any, str], ...] = ((Consumer, "max_records"), (RangeConsumer, "max_offsets"))
    for kind, name in kinds:
        with kind(bootstrap_servers=server) as made:
            made.assign([TP])
            for value, error in ((0, ValueError), (-2, ValueError), (1.5, TypeError), ("5", TypeError)):
                with pytest.raises(error, match=f"poll: {name}.*{value}"):
                    made.poll(timeout=0, **{name: value})
            made.close(timeout=0)


@pytest.mark.requirement("surface/arguments")
@pytest.mark.parametrize(
    "given",
    [(TP, OTHER), ([TP, OTHER],), ({TP, OTHER},), ([TP], OTHER), (("t", 0), ("t", 1))],
    ids=["one by one", "a list", "a set", "a list and one", "pairs"],
)
def test_partitions_one_by_one_or_as_any_iterable(consumer: Any, given: tuple[Any, ...]) -> None:
    consumer.assign([TP, OTHER])
    consumer.pause(*given)
    assert consumer.paused() == {TP, OTHER}
    consumer.resume(*given)
    assert consumer.paused() == frozenset()


def test_none_at_all_is_nothing_to_pause_and_all_to_seek(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    consumer.pause()
    consumer.pause([])
    assert posted == []
    consumer.seek_to_beginning()
    consumer.seek_to_beginning([])
    assert [type(event) for event in posted] == [SetPosition, SetPosition], "of all that are owned, as in Java"


MANY: dict[str, Callable[[Any], object]] = {
    "pause": lambda c: c.pause(TP, OTHER),
    "resume": lambda c: c.resume(TP, OTHER),
    "seek_to_beginning": lambda c: c.seek_to_beginning(TP, OTHER),
    "seek_to_end": lambda c: c.seek_to_end([TP, OTHER]),
}


@pytest.mark.requirement("surface/arguments")
@pytest.mark.parametrize("verb", MANY)
def test_where_one_of_many_is_not_assigned_none_is_changed(
    consumer: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the log its records would be skipped, though the call has said that it failed."""
    if verb == "resume":
        consumer.pause(TP)
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    with pytest.raises(ValueError, match="t-1"):
        MANY[verb](consumer)
    assert posted == []


@pytest.mark.requirement("surface/arguments")
def test_a_snapshot_of_a_pair_and_of_numbers_of_any_kind_is_taken(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    five: Any = numpy.int64(5)
    given: Any = {("t", 0): replace(ENTRY, offset=five)}
    consumer.commit_async(CommitSnapshot(given))
    (commit,) = (each for each in posted if isinstance(each, Commit))
    assert [(tp.topic, tp.partition, each.offset) for tp, each in commit.entries.items()] == [("t", 0, 5)]
    assert repr(CommitSnapshot(given)) == "CommitSnapshot(t-0: 5)"


@pytest.mark.requirement("surface/arguments")
def test_what_was_committed_may_be_sought_with_its_epoch(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    consumer.seek(TP, OffsetAndMetadata(offset=7, leader_epoch=3, metadata="m"))
    consumer.seek(("t", numpy.int32(0)), numpy.int64(8))
    assert [(event.partition, event.offset, event.leader_epoch) for event in posted] == [(TP, 7, 3), (TP, 8, -1)]
    assert type(posted[1].offset) is int


class Strings(StrEnum):
    T = "t"


class Mixed(str, Enum):  # noqa: UP042 - as applications have them
    T = "t"


@pytest.mark.requirement("surface/arguments")
@pytest.mark.parametrize("topic", [Strings.T, Mixed.T, numpy.str_("t")], ids=lambda each: type(each).__name__)
def test_a_topic_of_a_class_that_is_a_text_is_taken_as_the_text(
    consumer: Any, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The decoder's records take nothing else: after an assign each record raised, with the position beyond it."""
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    (assigned,) = consumer.assignment()
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    consumer.seek(tp, 5)
    consumer.commit_async({tp: 5})
    (sought, commit) = posted
    for each in (assigned, sought.partition, *commit.entries):
        assert (type(each.topic), each) == (str, TP)


def test_committed_takes_a_list_as_elsewhere(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []
    monkeypatch.setattr(consumer._driver.application._state, "send", posted.append)
    for given in ((TP, OTHER), ([TP, OTHER],)):
        with pytest.raises(Exception, match="within its timeout"):
            consumer.committed(*given, timeout=0)
    requested = [event.partitions for event in posted if isinstance(event, FetchCommitted)]
    assert requested == [(TP, OTHER), (TP, OTHER)]
    assert consumer.committed([]) == {}


def test_a_listener_may_be_any_object_with_its_methods(server: str) -> None:
    methods = {f"on_partitions_{what}": print for what in ("assigned", "revoked", "lost")}
    with Consumer(bootstrap_servers=server, group_id="g") as made:
        made.subscribe(["t"], listener=SimpleNamespace(**methods))  # type: ignore[arg-type]
        made.close(timeout=0)


@pytest.mark.parametrize("forever", [math.inf, pytest.param(10**400, id="no float is as large")])
def test_a_time_out_without_end_is_one(consumer: Any, forever: float) -> None:
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(timeout=forever)


@pytest.mark.parametrize("verb", ["forget", "uncommitted"])
def test_a_ledger_is_asked_of_partitions_too(verb: str) -> None:
    for given in (TP, "t", ["t"], None):
        with pytest.raises(TypeError, match=rf"{verb}.*TopicPartition\("):
            getattr(OffsetLedger(), verb)(given)
