"""`Processor.testing`: what a user sees of his processor, in virtual time. And by it: the rounds."""

from __future__ import annotations

import asyncio
import pickle
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processing_help import tp

from instride import ConsumerRecord, Processor, Retry, TopicPartition, current_attempt
from instride._processing.arrow_batches import in_arrow
from instride._wire.arrow import schema
from instride.errors import DrainTimeoutError, IllegalStateError


def values(found: list[ConsumerRecord[Any, Any]]) -> list[Any]:
    return [each.value for each in found]


def example(section: str, name: str = "processor.md") -> str:
    page = (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page[page.index(f"# {section}") :], re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("processor.md", "Test it"),
        ("processor.md", "Batches"),
        ("retries.md", "Retries and dead letters"),
        ("retries.md", "Outages"),
    ],
)
def test_the_examples_of_the_pages_run_as_they_stand(page: str, section: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(example(section, page), page, "exec"), names)
    (test,) = [each for name, each in names.items() if name.startswith("test_")]
    test()


def test_retries_dead_letters_and_commits_in_virtual_time() -> None:

    def bill(record: ConsumerRecord[bytes | None, str]) -> None:
        if record.value == "bad":
            raise OSError("the bank is closed")

    billing = Processor(
        bill,
        topics=["t"],
        value_deserializer=bytes.decode,
        retry=Retry(attempts=3, on=OSError, backoff=10.0),
        dead_letters="dlq",
    )
    began = time.monotonic()
    with billing.testing() as kit:
        kit.give("t", b"one", key=b"a")
        kit.give("t", b"bad", key=b"b")
        kit.give("t", b"two", key=b"a")
        kit.run()
        assert values(kit.handled) == ["one", "two"]
        assert kit.committed == {tp(0): 0}, "where it began"
        kit.advance(1)
        assert kit.committed == {tp(0): 1}
        kit.advance(40)
        assert [(each.value, each.attempts) for each in kit.dead_letters] == [(b"bad", 3)]
        assert kit.committed == {tp(0): 3}
    assert time.monotonic() - began < 30, "its 41 seconds are none of ours"


def test_a_crash_loses_nothing_and_repeats_what_was_not_committed() -> None:
    with Processor(lambda record: None, topics=["t"]).testing() as kit:
        kit.give("t", b"1")
        kit.advance(2)
        kit.give("t", b"2")
        kit.run()
        kit.crash()
        kit.run()
        assert values(kit.handled) == [b"1", b"2", b"2"]


@pytest.mark.rule("16")
def test_a_hand_over_remembers_what_was_finished_beyond_a_retry() -> None:
    bad = [b"1"]

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.value in bad:
            raise OSError

    processor = Processor(handle, topics=["t"], order="none", retry=Retry(attempts=9, backoff=60.0))
    with processor.testing(partitions=2) as kit:
        for number in range(4):
            kit.give("t", b"%d" % number, partition=0)
        kit.run()
        kit.revoke("t", 0)
        kit.run()
        assert kit.owned == [tp(1)]
        assert kit.committed[tp(0)] == 1
        kit.assign("t", 0)
        bad.clear()
        kit.advance(1)
        assert values(kit.handled) == [b"0", b"2", b"3", b"1"]
        assert kit.tally.remembered == 2
        assert kit.committed[tp(0)] == 4


def test_coroutines_live_in_virtual_time_and_have_a_time_out() -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(50.0 if current_attempt().number == 1 else 5.0)

    processor = Processor(handle, topics=["t"], timeout=20.0, retry=Retry(attempts=2, backoff=0.0))
    with processor.testing() as kit:
        kit.give("t", b"1", key=b"a")
        kit.give("t", b"2", key=b"b")
        kit.advance(19.0)
        assert kit.tally.attempts == 0
        kit.advance(2.0)
        assert kit.tally.retried == 2
        kit.advance(4.5)
        assert values(kit.handled) == [b"1", b"2"]


def test_what_is_lost_is_cancelled_and_not_committed() -> None:
    cancelled = []

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        try:
            await asyncio.sleep(10.0)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    with Processor(handle, topics=["t"]).testing() as kit:
        kit.give("t", b"1")
        kit.run()
        kit.lose("t", 0)
        kit.advance(20)
        assert cancelled == [0]
        assert kit.handled == []
        assert kit.committed == {tp(0): 0}
        assert kit.tally.abandoned == 1


def test_a_stop_finishes_what_is_at_work_and_starts_nothing_more() -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(10.0)

    with Processor(handle, topics=["t"], order="partition").testing() as kit:
        kit.give("t", b"1")
        kit.give("t", b"2")
        kit.run()
        kit.stop()
        kit.advance(11)
        assert values(kit.handled) == [b"1"]
        assert kit.committed == {tp(0): 1}
        with pytest.raises(IllegalStateError):
            kit.run()


def test_a_stop_gives_up_what_takes_longer_than_the_drain() -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(100.0)

    with Processor(handle, topics=["t"], drain_timeout=5.0).testing() as kit:
        kit.give("t", b"1")
        kit.run()
        kit.stop()
        with pytest.raises(DrainTimeoutError, match=r"with 1 record in progress after 5 s .*: t-0 at offset 0\. No"):
            kit.advance(6)
        assert kit.tally.abandoned == 1
        assert kit.committed == {tp(0): 0}


def test_what_ends_the_processor_is_raised() -> None:
    def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise ValueError("no such order")

    with Processor(handle, topics=["t"]).testing() as kit:
        kit.give("t", b"1")
        with pytest.raises(ValueError, match="no such order"):
            kit.run()


def test_back_pressure_pauses_and_goes_on() -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(1.0)

    with Processor(handle, topics=["t"], max_records=4, concurrency=2, order="none").testing(partitions=2) as kit:
        for round_ in range(10):
            kit.give("t", b"%d" % round_, partition=round_ % 2)
            kit.run()
        kit.advance(11)
        assert len(kit.handled) == 10


def test_what_it_does_not_read_is_refused() -> None:
    with Processor(print, topics=["t"]).testing() as kit:
        with pytest.raises(ValueError, match="u-0"):
            kit.give("u", b"")
        with pytest.raises(ValueError, match="t-7"):
            kit.revoke("t", 7)
        assert kit.owned == []
        kit.run()
        assert kit.owned == [TopicPartition("t", 0)]
        assert kit.now == 0.0


def test_a_stuck_record_is_named_in_the_log_once_and_holds_up_its_key_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.value == b"slow":
            await asyncio.sleep(100.0)

    with Processor(handle, topics=["t"], stuck_after=10.0).testing() as kit:
        kit.give("t", b"slow", key=b"a")
        kit.give("t", b"behind", key=b"a")
        for number in range(60):
            kit.give("t", b"%d" % number, key=b"b")
            kit.advance(1.0)
        assert len(kit.handled) == 60
        assert [each.getMessage() for each in caplog.records if "in progress" in each.getMessage()] == [
            "t-0 at offset 0 has been in progress for 10 s"
        ]
        assert kit.committed == {tp(0): 0}
        kit.advance(41.0)
        assert len(kit.handled) == 62
        assert kit.tally.longest == pytest.approx(100.0, abs=1.1)


def test_commits_come_by_count_or_by_age() -> None:
    with Processor(print, topics=["t"], commit_records=3, commit_interval=50.0).testing(partitions=1) as kit:
        for expected in (0, 0, 3, 3, 3, 6):
            kit.give("t", b"")
            kit.run()
            assert kit.committed == {tp(0): expected}
        kit.give("t", b"")
        kit.advance(49.0)
        assert kit.committed == {tp(0): 6}
        kit.advance(1.5)
        assert kit.committed == {tp(0): 7}


def test_without_an_interval_commits_come_after_each_poll() -> None:
    with Processor(print, topics=["t"], commit_interval=0.0).testing() as kit:
        kit.give("t", b"")
        kit.advance(0.1)
        assert kit.committed == {tp(0): 1}


def test_batches_are_started_by_size_and_by_age() -> None:
    sizes = []

    def handle(records: list[ConsumerRecord[bytes | None, str]]) -> None:
        sizes.append(len(records))

    processor = Processor(
        handle, topics=["t"], order="partition", max_batch=4, max_wait=2.0, value_deserializer=bytes.decode
    )
    with processor.testing() as kit:
        for number in range(10):
            kit.give("t", b"%d" % number)
        kit.run()
        assert sizes == [4, 4]
        kit.advance(2.5)
        assert sizes == [4, 4, 2]
        assert values(kit.handled) == [str(number) for number in range(10)]
        kit.advance(1)
        assert kit.committed == {tp(0): 10}


def test_a_poisonous_record_of_a_batch_is_found() -> None:
    def handle(records: list[ConsumerRecord[Any, Any]]) -> None:
        if any(record.value == b"3" for record in records):
            raise ValueError("bad")

    processor = Processor(
        handle, topics=["t"], order="partition", max_batch=5, retry=Retry(attempts=2, backoff=1.0), dead_letters="dlq"
    )
    with processor.testing() as kit:
        for number in range(5):
            kit.give("t", b"%d" % number)
        kit.advance(10)
        assert values(kit.handled) == [b"0", b"1", b"2", b"4"]
        assert [each.value for each in kit.dead_letters] == [b"3"]
        assert kit.committed == {tp(0): 5}


def test_a_batch_with_a_record_that_cannot_be_deserialized() -> None:
    async def handle(records: list[ConsumerRecord[bytes | None, str]]) -> None: ...

    processor = Processor(
        handle, topics=["t"], max_batch=3, max_wait=0.0, value_deserializer=bytes.decode, on_failure="skip"
    )
    with processor.testing() as kit:
        for value in (b"1", b"\xff", b"2"):
            kit.give("t", value)
        kit.advance(1)
        assert values(kit.handled) == ["1", "2"]
        assert kit.tally.skipped == 1


def test_a_batch_as_an_arrow_table() -> None:
    """As a poll would have made it; and each record alone where the batch fails."""
    seen: list[pa.Table] = []

    async def handle(table: pa.Table) -> None:
        seen.append(table)
        if b"bad" in table.column("value").to_pylist():
            raise ValueError("one is bad")

    processor = Processor(
        handle,
        topics=["t"],
        max_batch=3,
        batch_format="arrow",
        retry=Retry(attempts=2, backoff=1.0),
        on_failure="skip",
    )
    with processor.testing() as kit:
        kit.give("t", b"one", key=b"k", headers=[("h", b"1"), ("i", None)])
        kit.give("t", None)
        kit.give("t", b"bad")
        kit.run()
        kit.advance(3.0)
        assert values(kit.handled) == [b"one", None]
        assert kit.tally.skipped == 1
    assert seen[0].schema == schema()
    assert seen[0].drop_columns(["timestamp", "timestamp_type"]).to_pylist() == [
        {"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"one", "headers": HEADERS},
        {"topic": "t", "partition": 0, "offset": 1, "key": None, "value": None, "headers": None},
        {"topic": "t", "partition": 0, "offset": 2, "key": None, "value": b"bad", "headers": None},
    ]
    assert [table.column("offset").to_pylist() for table in seen] == [[0, 1, 2], [0], [1], [2]]


HEADERS = [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]


def test_a_handler_of_tables_goes_to_a_process() -> None:
    sent = pickle.loads(pickle.dumps(in_arrow(rows_of, is_async=False)))
    assert sent([]) == 0


def rows_of(table: pa.Table) -> int:
    return int(table.num_rows)


def test_exactly_once_into_a_database_as_the_page_has_it(tmp_path: Path) -> None:
    """Also where the process dies after the transaction and before the commit."""
    names: dict[str, Any] = {}
    code = example("Exactly once into a database").replace('"billing.db"', repr(str(tmp_path / "billing.db")))
    exec(compile(code, "docs/processor.md", "exec"), names)
    with closing(sqlite3.connect(tmp_path / "billing.db")) as db:
        db.execute("CREATE TABLE bills (amount INTEGER)")
        with names["billing"].testing() as kit:
            for number in range(7):
                kit.give("orders", b"%d" % number)
            kit.advance(2.5)
            for number in range(7, 10):
                kit.give("orders", b"%d" % number)
            kit.advance(0.3)
            kit.crash()
            kit.advance(2.0)
            assert list(kit.committed.values()) == [10]
        assert sorted(db.execute("SELECT amount FROM bills")) == [(number,) for number in range(10)]


class NoTextError(Exception):
    """What a user's class may be."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def add_note(self, note: str, /) -> None:
        raise RuntimeError("no notes")


async def is_async(record: ConsumerRecord) -> None: ...


def returns_coroutine(record: ConsumerRecord) -> Any:
    return is_async(record)


@pytest.mark.parametrize(
    ("handler", "error", "text"),
    [
        (returns_coroutine, "builtins.TypeError", "nothing has run"),
        (lambda record: (each for each in [record]), "builtins.TypeError", "nothing has run"),
        (lambda record: _raise(NoTextError()), "test_processor_kit.NoTextError", "its text cannot be had"),
    ],
)
def test_what_a_handler_does_wrong_goes_the_way_of_errors(handler: Any, error: str, text: str) -> None:
    with Processor(handler, topics=["t"], dead_letters="dlq").testing() as kit:
        kit.give("t", b"one")
        kit.run()
        (letter,) = kit.dead_letters
    told = {name: (value or b"").decode() for name, value in letter.headers}
    assert told["instride.error"] == error
    assert text in told["instride.message"]


def test_an_error_that_takes_no_note_ends_the_processor_all_the_same() -> None:
    kit = Processor(lambda _: _raise(NoTextError()), topics=["t"]).testing()
    kit.give("t", b"one")
    with pytest.raises(NoTextError):
        kit.run()


def test_a_record_that_kills_its_process_is_dead_lettered() -> None:
    class KillError(BaseException):
        """In place of a signal: it leaves the kit at once."""

    deaths = 0

    def handle(record: ConsumerRecord) -> None:
        if record.value == b"killer":
            raise KillError

    with Processor(handle, topics=["t"], order="partition", dead_letters="dlq").testing() as kit:
        for value in (b"one", b"killer", b"two"):
            kit.give("t", value)
        while not kit.committed or list(kit.committed.values()) != [3]:
            try:
                kit.advance(1.0)
            except KillError:
                deaths += 1
                kit.crash()
        assert [(letter.value, letter.attempts) for letter in kit.dead_letters] == [(b"killer", 3)]
        assert {record.value for record in kit.handled} == {b"one", b"two"}
    assert deaths == 4


def _raise(error: BaseException) -> None:
    raise error
