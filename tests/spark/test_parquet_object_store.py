"""The Parquet sink in an object store: races, lost answers, crashes at every call, and what the errors say.

Each test has an S3 server of its own (`s3_server`). The contract of all sinks runs on it too: `test_sink_contract.py`.
"""

from __future__ import annotations

import ast
import builtins
import json
import logging
import pickle
import random
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
import trustme
from obstore.exceptions import GenericError
from parquet_help import PARTITION, Crash, batches, commit, span, write
from s3_server import HANG, S3Server, options_for, s3_server

from drawn_by_commit import WHOLE
from drawn_by_commit import commit as of_code
from instride.errors import (
    ConfigError,
    KafkaError,
    MissingDataError,
    NotASinkError,
    SinkError,
    SinkUnavailableError,
    SinkWriteError,
)
from instride.records import TopicPartition
from instride.spark.parquet import ParquetSink, ParquetWriter, _vacuum, compact, read_files, read_table, vacuum
from instride.spark.parquet import _manifest_chain as manifest_chain
from instride.spark.parquet import _object_storage as module
from instride.spark.parquet._storage import NoRemovalError
from instride.spark.sink import CommitStatus, FileInfo, JobResult, OutputRange
from pyspark_instride_parquet import DefaultSource

URI = "s3://bucket/a/flights"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSES", [0.0] * 3)
    monkeypatch.setattr(_vacuum, "_IN_FLIGHT", 0.0)  # no request of these tests is under way beside a vacuum


class Place:
    """A sink's URI at the server of a test."""

    def __init__(self, server: S3Server, uri: str = URI) -> None:
        self.server = server
        self.uri = uri
        self.options = options_for(server.endpoint)

    def sink(self) -> ParquetSink:
        return ParquetSink(self.uri, storage_options=self.options)

    def rows(self) -> list[tuple[int, str]]:
        table = read_table(self.uri, storage_options=self.options).to_pylist()
        return sorted((row["offset"], row["job"]) for row in table)

    def files(self) -> list[str]:
        return read_files(self.uri, storage_options=self.options)

    def compact(self, **settings: Any) -> list[str]:
        return compact(self.uri, storage_options=self.options, **settings)

    def vacuum(self, **settings: Any) -> list[str]:
        return vacuum(self.uri, storage_options=self.options, **settings)

    def go_on(self, ranges: int = 1, job: str = "a") -> None:
        sink = self.sink()
        for _ in range(ranges):
            start = sink.positions([PARTITION])[PARTITION] or 0
            commit(sink, job, write(sink, span(start, start + 3), job))

    def names(self) -> list[str]:
        return sorted(key for _, key in self.server.objects)


@pytest.fixture
def place(s3: S3Server) -> Place:
    return Place(s3)


class StoreCalls:
    """Stands in for ``obstore`` in the sink: counts the calls, and does something before or after a chosen one."""

    WATCHED = ("put", "get", "head", "list_with_delimiter", "delete", "get_range")

    def __init__(self, at: int = -1, act: Callable[[], None] | None = None, *, after: bool = False) -> None:
        self.made: list[str] = []
        self._at = at
        self._act = act
        self._after = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(obstore, name)
        return partial(self._watched, name, real) if name in self.WATCHED else real

    def _watched(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.made.append(name)
        due = self._act is not None and self._due(len(self.made))
        if due and not self._after and self._act is not None:
            self._act()
        found = real(*args, **kwargs)
        if due and self._after and self._act is not None:
            self._act()
        return found

    def _due(self, number: int) -> bool:
        return number == self._at + 1

    def install(self, patch: pytest.MonkeyPatch) -> StoreCalls:
        patch.setattr(module, "obstore", self)
        return self


class DeadFrom(StoreCalls):
    """The process dies before or just after the call of a number; later calls do nothing."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        super().__init__(at, self._die, after=after)
        self._first = at

    def _due(self, number: int) -> bool:
        if number > self._first + 1:
            self._after = False
        return number > self._first

    def _die(self) -> None:
        raise Crash


def _calls(action: Callable[[], object]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        calls = StoreCalls().install(patch)
        action()
    return len(calls.made)


def _whole(place: Place) -> None:
    """All that a driver and an executor do for one range, in a prefix that is not there yet."""
    sink = place.sink()
    commit(sink, "a", write(sink, span(0, 3), "a"))


def test_all_of_a_sink_is_below_its_prefix(place: Place) -> None:
    place.go_on(3)
    assert place.sink().positions([PARTITION]) == {PARTITION: 9}
    assert place.rows() == [(offset, "a") for offset in range(9)]
    assert all(key.startswith("a/flights/_") or "/read-this" in key for key in place.names())
    assert [each.startswith(f"{URI}/_data/topic-flights/partition-00003/0000") for each in place.files()] == [True] * 3
    assert repr(place.sink()) == f"ParquetSink({URI!r})"
    assert place.sink().uri == URI
    with pytest.raises(NotASinkError, match="not on a local file system"):
        _ = place.sink().folder


def test_a_whole_bucket_may_be_a_sink(s3: S3Server) -> None:
    place = Place(s3, "s3://bucket")
    place.go_on(2)
    place.compact()
    assert len(place.rows()) == 6
    assert place.names()[0].startswith("_compacted/")


def test_no_file_stays_in_the_executors_temporary_folder(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place.go_on()

    def broken() -> Any:
        yield from batches(span(0, 3), "b")
        raise ConnectionResetError("Kafka went away")

    with pytest.raises(ConnectionResetError):
        place.sink().writer().write(span(3, 9), job="b", attempt=0, batches=broken())
    with pytest.raises(SinkWriteError, match="permission denied"):
        _write(Place(place.server, "s3://forbidden/x"))
    assert list(tmp_path.iterdir()) == []


def _write(place: Place) -> None:
    output = span(0, 3)
    ParquetWriter(place.uri, storage_options=place.options).write(
        output, job="a", attempt=0, batches=batches(output, "a")
    )


def test_a_large_file_is_uploaded_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_BYTES", 5 << 20)
    noise = random.Random(7).randbytes(12 << 20)
    sink = place.sink()
    output = span(0, 1)
    commit(sink, "a", sink.writer().write(output, job="a", attempt=0, batches=iter([pa.record_batch({"x": [noise]})])))
    assert sum("partNumber" in path for _, path in place.server.requests) == 3
    assert read_table(URI, storage_options=place.options)["x"].to_pylist() == [noise]


def test_of_drivers_that_commit_at_once_one_wins(place: Place) -> None:
    drivers = 6
    place.sink().writer()
    gate = threading.Barrier(drivers)

    def work(number: int) -> int:
        sink, won = place.sink(), 0
        for turn in range(5):
            output = span(3 * turn, 3 * turn + 3)
            written = write(sink, output, f"job{number}")
            gate.wait(60)
            won += commit(sink, f"job{number}", written).status is CommitStatus.COMMITTED
        return won

    with ThreadPoolExecutor(drivers) as pool:
        wins = list(pool.map(work, range(drivers)))
    assert sum(wins) == 5
    assert [offset for offset, _ in place.rows()] == list(range(15))


def test_compaction_and_vacuum_leave_the_rows_and_few_objects(place: Place) -> None:
    place.go_on(5)
    before = place.rows()
    assert len(place.compact()) == 1
    assert len(place.vacuum(keep_for=0)) == 5
    assert place.rows() == before
    assert len(place.names()) == 5, "the marker, the signpost, one manifest, one checkpoint, one file"
    place.go_on(2)
    assert place.vacuum() == []
    assert len(place.rows()) == 21


def test_losers_files_go(place: Place) -> None:
    sink = place.sink()
    zombie, loser = write(sink, span(0, 3), "z"), write(sink, span(0, 3), "l")
    place.go_on()
    assert commit(sink, "l", loser).status is CommitStatus.CONFLICT
    assert place.vacuum() == [f"{URI}/{zombie.files[0].path}"]
    assert len(place.files()) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_leaves_all_or_nothing(s3: S3Server, after: bool) -> None:
    total = _calls(lambda: _whole(Place(s3, "s3://bucket/count")))
    assert total > 10
    winners = []
    for at in range(total):
        place = Place(s3, f"s3://bucket/{at}")
        with pytest.MonkeyPatch.context() as patch:
            DeadFrom(at, after=after).install(patch)
            with pytest.raises(Crash):
                _whole(place)
        if (place.sink().positions([PARTITION])[PARTITION] or 0) == 0:
            place.go_on(job="z")
        seen = place.rows()
        assert [offset for offset, _ in seen] == [0, 1, 2], f"after a crash at call {at}"
        winners.append(seen[0][1])
        place.vacuum()
        assert place.rows() == seen
    assert winners == sorted(winners, reverse=True)
    assert set(winners) == {"a", "z"}


def _prepared(place: Place) -> Place:
    place.go_on(2)
    place.compact()
    place.go_on(1)
    return place


def _keep_small(place: Place) -> None:
    place.compact()
    place.vacuum(keep_for=0)


@pytest.mark.slow
def test_a_crash_of_a_compaction_or_vacuum_at_any_call_changes_no_row(s3: S3Server) -> None:
    """A run tries one call in seven, and begins where the commit says."""
    total = _calls(lambda: _keep_small(_prepared(Place(s3, "s3://bucket/count"))))
    crashes, stride = 0, 1 if WHOLE else 7
    for at in range(int(of_code(), 16) % stride, total, stride):
        place = _prepared(Place(s3, f"s3://bucket/{at}"))
        with pytest.MonkeyPatch.context() as patch:
            DeadFrom(at).install(patch)
            try:
                _keep_small(place)
            except Crash:
                crashes += 1
        place.go_on()
        _keep_small(place)
        assert [offset for offset, _ in place.rows()] == list(range(12)), f"after a crash at call {at}"
        assert len([key for _, key in s3.objects if key.startswith(f"{at}/")]) == 5
    assert crashes > 15 // stride


@pytest.mark.slow
def test_others_may_do_all_of_it_between_any_two_calls(s3: S3Server) -> None:
    for at in range(_calls(lambda: Place(s3, "s3://bucket/count").go_on())):
        place = _prepared(Place(s3, f"s3://bucket/{at}"))

        def others(place: Place = place) -> None:
            place.go_on(1, "b")
            _keep_small(place)

        with pytest.MonkeyPatch.context() as patch:
            StoreCalls(at, others).install(patch)
            place.go_on()
        seen = [offset for offset, _ in place.rows()]
        assert seen == list(range(len(seen)))
        assert len(seen) >= 12


@pytest.mark.parametrize("bucket", ["losing", "losing-before"])
def test_a_put_without_an_answer_is_decided_by_what_is_there(s3: S3Server, bucket: str) -> None:
    """The server does the first PUT of each key and answers with an error, or does not do it."""
    place = Place(s3, f"s3://{bucket}/out")
    sink = place.sink()
    written = write(sink, span(0, 3), "a")
    assert commit(sink, "a", written).status is CommitStatus.COMMITTED
    assert commit(sink, "a", written).status is CommitStatus.ALREADY
    assert place.rows() == [(offset, "a") for offset in range(3)]


@pytest.mark.parametrize("again", ["begin", "commit"])
def test_what_is_in_is_not_written_once_more_where_it_comes_again(place: Place, again: str) -> None:
    """It was, to be durable. Where the store answered 503, what was there looked like just written, and was removed."""
    written = write(place.sink(), span(0, 3), "a")
    commit(place.sink(), "a", written)
    busy: list[str] = []

    def instead(method: str, path: str) -> int | None:
        if method != "PUT" or "/_instride/topic" not in path or busy:
            return None
        busy.append(path)
        return 503

    place.server.instead = instead
    if again == "begin":
        assert place.sink().begin(PARTITION, 0) == 3
    else:
        assert commit(place.sink(), "a", written).status is CommitStatus.ALREADY
    assert busy == []
    assert place.rows() == [(offset, "a") for offset in range(3)]


def test_a_put_whose_place_another_takes_is_lost(place: Place) -> None:
    """No answer, nothing there; then another's manifest is: it is not ours."""
    sink = place.sink()
    written = write(sink, span(0, 3), "a")

    class Lost(StoreCalls):
        def __getattr__(self, name: str) -> Any:
            real = super().__getattr__(name)
            if name != "put" or "put" in self.made:
                return real

            def lost(*_: Any, **__: Any) -> Any:
                self.made.append("put")
                place.go_on(1, "b")
                raise GenericError("operation timed out")

            return lost

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "obstore", Lost())
        assert commit(sink, "a", written).status is CommitStatus.CONFLICT
    assert [job for _, job in place.rows()] == ["b"] * 3


def test_a_store_that_never_answers_is_a_typed_error_and_can_be_tried_again(place: Place) -> None:
    sink = place.sink()
    written = write(sink, span(0, 3), "a")

    def fail() -> None:
        raise GenericError("operation timed out")

    class Silent(StoreCalls):
        def _due(self, _number: int) -> bool:
            return self.made[-1] == "put"

    with pytest.MonkeyPatch.context() as patch:
        calls = Silent(act=fail).install(patch)
        with pytest.raises(
            SinkWriteError, match=r"s3://bucket/a/flights/_instride/.*does not answer.*timed out"
        ) as caught:
            commit(sink, "a", written)
    assert caught.value.retriable
    assert calls.made.count("put") == 4
    assert commit(sink, "a", written).status is CommitStatus.COMMITTED


def test_a_key_that_is_refused_and_not_there_is_tried_again(place: Place) -> None:
    """As where a store is busy with another's PUT, which then fails."""
    sink = place.sink()
    written = write(sink, span(0, 3), "a")
    refusals = ["first", "second"]

    def refuse() -> None:
        if refusals:
            refusals.pop()
            raise obstore.exceptions.AlreadyExistsError("409 ConditionalRequestConflict")

    class Busy(StoreCalls):
        def _due(self, _number: int) -> bool:
            return self.made[-1] == "put"

    with pytest.MonkeyPatch.context() as patch:
        Busy(act=refuse).install(patch)
        assert commit(sink, "a", written).status is CommitStatus.COMMITTED


def test_a_store_that_ignores_the_condition_is_refused_at_once(s3: S3Server) -> None:
    place = Place(s3, "s3://unconditional/out")
    with pytest.raises(NotASinkError, match=r"s3://unconditional ignores the condition .* Two drivers could commit"):
        place.sink().writer()
    with pytest.raises(NotASinkError, match="ignores the condition"):
        place.sink().positions([PARTITION])
    assert len([key for key in place.names() if "topic" in key]) == 0


@pytest.mark.parametrize(
    ("bucket", "error", "match"),
    [
        ("absent", NotASinkError, "the bucket s3://absent is not there"),
        ("forbidden", SinkError, r"s3://forbidden/out/.*permission denied; check the credentials"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_named(
    s3: S3Server, bucket: str, error: type[Exception], match: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(s3, f"s3://{bucket}/out")
    calls: list[Callable[[], object]] = [place.rows, place.vacuum, place.compact, lambda: place.sink().writer()]
    if bucket == "absent":
        calls.append(lambda: _write(place))
    caplog.set_level(logging.DEBUG)
    for call in calls:
        with pytest.raises(error, match=match) as caught:
            call()
        assert "hush" not in f"{caught.value} {caught.value.__notes__ if hasattr(caught.value, '__notes__') else ''}"
    assert "hush" not in caplog.text


def test_other_objects_at_the_prefix_are_no_sink(place: Place) -> None:
    place.server.objects[("bucket", "a/flights/thesis.doc")] = b"years of work"
    with pytest.raises(
        NotASinkError, match=r"s3://bucket/a/flights is not a sink and not empty \(it holds thesis\.doc"
    ):
        place.sink().writer()
    with pytest.raises(NotASinkError, match="is not a sink of instride"):
        place.rows()
    assert place.names() == ["a/flights/thesis.doc"]


def test_a_data_object_that_is_gone_is_named(place: Place) -> None:
    sink = place.sink()
    written = write(sink, span(0, 3), "a")
    place.go_on()
    key = f"a/flights/{written.files[0].path}"
    there = place.files()
    place.server.objects.pop(("bucket", there[0].removeprefix("s3://bucket/")))
    with pytest.raises(MissingDataError, match=r"s3://bucket/a/flights/_data/.*it was deleted or moved"):
        place.rows()
    lost = write(sink, span(3, 4), "a")
    place.server.objects.pop(("bucket", f"a/flights/{lost.files[0].path}"))
    with pytest.raises(MissingDataError, match="s3://bucket/a/flights/_data/"):
        commit(sink, "a", lost)
    assert ("bucket", key) in place.server.objects


def test_to_read_a_file_costs_no_request_but_those_that_read_it(place: Place) -> None:
    """Whether it is there, the first of them tells."""
    place.go_on(3)
    place.server.requests.clear()
    place.rows()
    assert place.server.count("HEAD", "/_data/") == 0
    before = place.server.count("GET", "/_data/")
    assert before >= 3
    options = {"path": URI, **{f"storage.{name}": value for name, value in place.options.items()}}
    reader = DefaultSource(options).reader(DefaultSource(options).schema())
    assert len([batch for task in reader.partitions() for batch in reader.read(task)]) == 3
    place.compact()
    assert place.server.count("GET", "/_data/") > before
    assert place.server.count("HEAD", "/_data/") == 0


def test_a_worker_keeps_its_client_from_task_to_task(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of each task's own would connect anew, and fetch the credentials of a role anew."""
    made: list[str] = []
    real = obstore.store.from_url

    def from_url(url: str, **how: Any) -> Any:
        made.append(url)
        return real(url, **how)

    monkeypatch.setattr(module, "from_url", from_url)
    sink = place.sink()
    for number in range(10):
        write(sink, span(3 * number, 3 * number + 3), f"job{number}")
        if number == 0:
            made.clear()
    assert made == []
    place.go_on(3)
    options = {"path": URI, **{f"storage.{name}": value for name, value in place.options.items()}}
    reader = DefaultSource(options).reader(DefaultSource(options).schema())
    (task,) = reader.partitions()
    made.clear()
    assert [len(list(reader.read(task))) for _ in range(5)] == [3] * 5
    assert made == []


@pytest.mark.parametrize("read", [Place.rows, Place.vacuum], ids=["rows", "vacuum"])
def test_many_manifests_are_read_beside_each_other(
    place: Place, read: Callable[[Place], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits until another one is asked for."""
    monkeypatch.setattr(manifest_chain, "_PART", 2)
    place.go_on(4)
    two = threading.Barrier(2)

    def instead(method: str, path: str) -> None:
        if method == "GET" and path.endswith(".json") and reading.is_set():
            two.wait(30)

    reading = threading.Event()
    place.server.instead = instead
    real = manifest_chain.Chain._read_all

    def watched(chain: manifest_chain.Chain, *given: Any) -> list[Any]:
        reading.set()
        try:
            return real(chain, *given)
        finally:
            reading.clear()

    monkeypatch.setattr(manifest_chain.Chain, "_read_all", watched)
    read(place)
    assert not two.broken
    assert two.n_waiting == 0


def test_partitions_are_read_beside_each_other(place: Place) -> None:
    """Each manifest waits until one of another partition is asked for."""
    sink = place.sink()
    for partition in (0, 1):
        output = OutputRange(topic="flights", partition=partition, start=0, end=1)
        written = sink.writer().write(output, job="a", attempt=0, batches=iter([pa.record_batch({"n": [partition]})]))
        assert sink.commit(JobResult(job="a", written=(written,)))[output.topic_partition].is_in
    two = threading.Barrier(2)

    def instead(method: str, path: str) -> None:
        if method == "GET" and path.endswith(".json") and not path.endswith("/sink.json"):
            with suppress(threading.BrokenBarrierError):
                two.wait(30)

    place.server.instead = instead
    assert len(place.files()) == 2
    assert not two.broken


def test_a_file_that_is_gone_is_named_by_every_reader(place: Place) -> None:
    place.go_on(2)
    options = {"path": URI, **{f"storage.{name}": value for name, value in place.options.items()}}
    reader = DefaultSource(options).reader(DefaultSource(options).schema())
    task = reader.partitions()[0]
    place.server.objects.pop(("bucket", place.files()[1].removeprefix("s3://bucket/")))
    readers: list[Callable[[], object]] = [place.rows, place.compact, lambda: list(reader.read(task))]
    for read in readers:
        with pytest.raises(MissingDataError, match=r"a manifest lists s3://bucket/a/flights/_data/.*is not there"):
            read()


# Every request that is not answered lasts longer than anything is tried again, so it is sent once.
SOON = {"timeout": "1 s", "retry_timeout": "1 ms"}


def _all(method: str, part: str, status: int) -> Callable[[str, str], int | None]:
    """For all such requests."""
    return lambda made, path: status if made == method and part in path else None


@pytest.mark.parametrize(
    ("method", "part", "error"),
    [
        ("PUT", "/_instride/topic", SinkWriteError),
        ("PUT", "/_data/", SinkWriteError),
        ("GET", "/_instride/topic", SinkUnavailableError),
        ("GET", "list-type=2", SinkUnavailableError),
        ("HEAD", "/_data/", SinkUnavailableError),
    ],
    ids=["create", "upload", "read", "list", "size"],
)
def test_a_store_that_does_not_answer_ends_a_commit_in_time(
    place: Place, method: str, part: str, error: type[SinkError]
) -> None:
    place.go_on()
    sink = ParquetSink(URI, storage_options={**place.options, **SOON})
    written = write(place.sink(), span(3, 6), "a")
    place.server.instead = _all(method, part, HANG)
    place.server.requests.clear()
    is_upload = (method, part) == ("PUT", "/_data/")
    with pytest.raises(error, match=r"s3://bucket/a/flights/.* raise storage_options' timeout") as caught:
        _ = write(sink, span(3, 6), "a") if is_upload else commit(sink, "a", written)
    assert caught.value.retriable
    assert not caught.value.fatal
    assert place.server.count(method, part) == 1
    place.server.instead = lambda *_: None
    place.go_on()
    assert [offset for offset, _ in place.rows()] == list(range(6))


def test_what_a_put_without_an_answer_left_is_looked_up_once_and_in_time(place: Place) -> None:
    """The store falls silent with the PUT of the manifest: each PUT is followed by one look, not by ten."""
    place.go_on()
    sink = ParquetSink(URI, storage_options={**place.options, "timeout": "1 s", "retry_timeout": "3 s"})
    written = write(place.sink(), span(3, 6), "a")
    sink.positions([PARTITION])
    silent: list[str] = []

    def fall_silent(method: str, path: str) -> int | None:
        if silent or (method == "PUT" and "/_instride/topic" in path):
            silent.append(method)
            return HANG
        return None

    place.server.instead = fall_silent
    with pytest.raises(SinkWriteError, match="the object store does not answer for sure") as caught:
        commit(sink, "a", written)
    assert caught.value.retriable
    assert silent[:2] == ["PUT", "GET"]
    assert silent.count("GET") <= silent.count("PUT") <= 2
    place.server.instead = lambda *_: None
    assert commit(sink, "a", written).is_in


@pytest.mark.parametrize("status", [500, 503])
def test_a_store_that_is_busy_can_be_asked_again(place: Place, status: int) -> None:
    place.go_on()
    place.options |= {"retry_timeout": "1 ms"}
    place.server.instead = _all("GET", "", status)
    with pytest.raises(SinkUnavailableError, match=f"or is busy: .*{status}") as caught:
        place.rows()
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("method", "part", "lacks"),
    [
        ("PUT", "/_instride/topic", r"a PUT that creates only what is absent \(If-None-Match: \*\)"),
        ("PUT", "/_data/", r"uploads \(PUT, and large ones in parts\)"),
        ("GET", "/_instride/topic", "GET"),
        ("GET", "list-type=2", r"listings \(ListObjectsV2\)"),
        ("HEAD", "/_data/", "HEAD"),
    ],
    ids=["create", "upload", "read", "list", "size"],
)
def test_what_a_store_does_not_implement_is_named_and_ends_a_pipeline(
    place: Place, method: str, part: str, lacks: str
) -> None:
    place.go_on()
    sink = ParquetSink(URI, storage_options={**place.options, "retry_timeout": "1 ms"})
    place.server.instead = _all(method, part, 501)
    with pytest.raises(NotASinkError, match=f"the object store does not implement {lacks}: ") as caught:
        commit(sink, "a", write(sink, span(3, 6), "a"))
    assert caught.value.fatal
    assert not caught.value.retriable


def test_a_store_without_deletions_in_bulk_is_told_the_option_for_it(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.go_on(2)
    place.compact()
    options = {**place.options, "retry_timeout": "1 ms"}
    place.server.instead = _all("POST", "delete", 501)
    assert vacuum(URI, storage_options=options, keep_for=0) == []
    assert "does not implement DeleteObjects; set the storage option aws_disable_bulk_delete to true" in caplog.text
    assert vacuum(URI, storage_options={**options, "aws_disable_bulk_delete": "true"}, keep_for=0) != []


def test_an_answer_that_python_cannot_hold_is_a_typed_error(s3: S3Server) -> None:
    """A listing, and a HEAD, with a date in the year 0."""
    place = Place(s3)
    place.go_on()
    place.uri = "s3://year-zero/a/flights"
    s3.objects |= {("year-zero", key): content for (_, key), content in s3.objects.items()}
    with pytest.raises(SinkError, match=r"cannot list s3://year-zero/.* cannot be read: "):
        place.rows()
    storage = module.object_storage(place.uri, place.options)
    with pytest.raises(SinkError, match=r"cannot read s3://year-zero/.* cannot be read: "):
        storage.size("_instride/sink.json")


@pytest.mark.parametrize("path", ["../b", "a//b", "a\nb"])
def test_a_path_that_no_key_can_be_is_a_typed_error(place: Place, path: str) -> None:
    """As a damaged manifest may list it."""
    place.go_on()
    file = FileInfo(path=path, rows=3, bytes=1_000, attempt=0)
    storage = module.object_storage(URI, place.options)
    calls: list[Callable[[], object]] = [
        lambda: storage.size(path),
        lambda: storage.read(path),
        lambda: storage.opened(file).read(),
        lambda: storage.create_if_absent(path, b"x"),
    ]
    place.server.requests.clear()
    for call in calls:
        with pytest.raises(KafkaError) as caught:
            call()
        assert not caught.value.retriable
    assert place.server.requests == []


def _requests(place: Place, tmp_path: Path, options: dict[str, str] | None = None) -> dict[str, Callable[[], object]]:
    """One of each kind, by its name."""
    storage = module.object_storage(place.uri, place.options | {"retry_timeout": "1 ms"} | (options or {}))
    scratch = tmp_path / "scratch"
    scratch.write_bytes(b"rows")
    return {
        "create": lambda: storage.create_if_absent("k", b"x"),
        "publish": lambda: storage.publish(scratch, "k"),
        "read": lambda: storage.read("k"),
        "size": lambda: storage.size("k"),
        "names": lambda: storage.names(""),
    }


def _refused_for_good(call: Callable[[], object], match: str) -> None:
    with pytest.raises(SinkError, match=match) as caught:
        call()
    assert not caught.value.retriable
    assert not caught.value.fatal


REQUESTS = ["create", "publish", "read", "size", "names"]


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_http_endpoint_that_is_not_allowed_is_told_the_option(place: Place, tmp_path: Path, kind: str) -> None:
    place.options.pop("allow_http")
    _refused_for_good(_requests(place, tmp_path)[kind], "needs the storage option allow_http: .*builder error")


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_certificate_that_is_not_trusted_is_told_the_option(tmp_path: Path, kind: str) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with s3_server(tls) as server:
        place = Place(server)
        match = r"the certificate .* is refused \(UnknownIssuer\): .* root_certificate"
        _refused_for_good(_requests(place, tmp_path)[kind], match)
        trusted = {"root_certificate": authority.cert_pem.bytes().decode()}
        _requests(place, tmp_path, trusted)[kind]()


def test_an_endpoint_that_speaks_no_tls_is_not_asked_again(place: Place, tmp_path: Path) -> None:
    place.options["aws_endpoint"] = place.server.endpoint.replace("http:", "https:")
    _refused_for_good(_requests(place, tmp_path)["create"], "does not speak TLS")


@pytest.mark.parametrize("kind", [each for each in REQUESTS if each != "size"])
def test_what_a_page_of_a_proxy_says_of_other_errors_decides_nothing(place: Place, tmp_path: Path, kind: str) -> None:
    place.server.instead = _all_of_them(403)
    place.server.says = "HTTP error: gone. status code: 501 or 503"
    with pytest.raises(SinkError, match="permission denied") as caught:
        _requests(place, tmp_path)[kind]()
    assert not isinstance(caught.value, NotASinkError | SinkUnavailableError)


def _all_of_them(status: int) -> Callable[[str, str], int | None]:
    return lambda _method, _path: status


def test_a_file_that_goes_before_its_upload_is_no_lack_of_a_bucket(place: Place, tmp_path: Path) -> None:
    """As where the folder of temporary files is cleaned."""
    call = _requests(place, tmp_path)["publish"]
    with pytest.MonkeyPatch.context() as patch:
        StoreCalls(0, (tmp_path / "scratch").unlink).install(patch)
        with pytest.raises(SinkWriteError, match=r"cannot write s3://bucket/a/flights/k from .*/scratch: ") as caught:
            call()
    assert caught.value.retriable


def test_an_upload_that_the_store_has_forgotten_can_be_tried_again(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the answer to its completion was lost, and the client completes it once more."""
    monkeypatch.setattr(module, "_PART_BYTES", 5 << 20)
    call = _requests(place, tmp_path)["publish"]
    (tmp_path / "scratch").write_bytes(bytes(6 << 20))
    place.server.instead = _all("POST", "uploadId", 404)
    with pytest.raises(SinkWriteError, match="NoSuchUpload") as caught:
        call()
    assert caught.value.retriable


def test_the_secret_in_an_endpoint_is_in_no_message(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "instride")
    place.options["aws_endpoint"] = place.server.endpoint.replace("://", "://user:hush@")
    place.server.instead = _all_of_them(503)
    for call in _requests(place, tmp_path).values():
        with pytest.raises(SinkError, match=r"://\*\*\*@127\.0\.0\.1") as caught:
            call()
        assert "hush" not in str(caught.value)
    with pytest.raises(SinkWriteError):
        _requests(place, tmp_path, {"retry_timeout": "1 s"})["create"]()
    assert "may have been created" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize("status", [HANG, 501, 503])
@pytest.mark.parametrize("is_compacted", [False, True], ids=["files", "manifests"])
def test_a_vacuum_ends_at_the_first_removal_that_the_store_does_not_answer(
    place: Place, caplog: pytest.LogCaptureFixture, status: int, is_compacted: bool
) -> None:
    """Each would take as long as it is tried again."""
    sink = place.sink()
    for _ in range(3):
        write(sink, span(0, 3), "z")
    place.go_on(3)
    if is_compacted:
        place.compact()
    place.server.requests.clear()
    place.server.instead = _all("POST", "delete", status)
    assert vacuum(URI, storage_options={**place.options, **SOON}, keep_for=0) == []
    assert caplog.text.count("cannot remove") == 1
    assert place.server.count("POST", "delete") <= 2
    assert "the vacuum of s3://bucket/a/flights ends here" in caplog.text
    place.server.instead = lambda *_: None
    assert len(place.vacuum(keep_for=0)) >= 3


def test_a_loser_whose_files_cannot_be_removed_does_not_try_each(place: Place) -> None:
    sink = place.sink()
    lost = write(sink, span(0, 3), "l")
    lost = replace(lost, files=lost.files + write(sink, span(0, 3), "l").files)
    place.go_on()
    place.server.instead = _all("POST", "delete", HANG)
    impatient = ParquetSink(URI, storage_options={**place.options, **SOON})
    place.server.requests.clear()
    assert commit(impatient, "l", lost).status is CommitStatus.CONFLICT
    assert place.server.count("POST", "delete") == 1
    place.server.instead = lambda *_: None
    assert len(place.vacuum()) == 2


def test_a_manifest_that_cannot_be_removed_keeps_those_after_it(place: Place) -> None:
    """They expire in order, though a call may fail."""
    place.go_on(4)
    place.compact()

    def fail() -> None:
        raise GenericError("503 SlowDown")

    class Failing(StoreCalls):
        def _due(self, _number: int) -> bool:
            return self.made.count("delete") == 1 and self.made[-1] == "delete"

    with pytest.MonkeyPatch.context() as patch:
        Failing(act=fail).install(patch)
        place.vacuum(keep_for=0)
    left = [key[-7:-5] for key in place.names() if "/_instride/topic" in key and "checkpoint" not in key]
    assert left == ["01", "02", "03", "04"]
    place.vacuum(keep_for=0)
    assert len(place.rows()) == 12
    assert len(place.names()) == 5


def test_the_writer_travels_and_shows_no_secret(place: Place) -> None:
    writer = place.sink().writer()
    assert "hush" not in repr(writer)
    again = pickle.loads(pickle.dumps(writer))
    output = span(0, 3)
    written = again.write(output, job="a", attempt=0, batches=batches(output, "a"))
    outcomes = place.sink().commit(JobResult(job="a", written=(written,)))
    assert outcomes[TopicPartition("flights", 3)].is_in


def test_the_source_reads_it(place: Place) -> None:
    place.go_on(3)
    options = {"path": URI, **{f"storage.{name}": value for name, value in place.options.items()}}
    schema = DefaultSource(options).schema()
    reader = pickle.loads(pickle.dumps(DefaultSource(options).reader(schema)))
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted(row["offset"] for row in found) == list(range(9))
    assert "hush" not in repr(vars(reader))


def test_credentials_may_come_from_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aws_endpoint", "aws_region", "aws_access_key_id", "aws_secret_access_key"):
        monkeypatch.setenv(name.upper(), place.options[name])
    sink = ParquetSink(URI, storage_options={"allow_http": "true"})
    commit(sink, "a", write(sink, span(0, 3), "a"))
    assert len(place.rows()) == 3


@pytest.mark.parametrize(
    ("uri", "options", "error", "match"),
    [
        ("hdfs://namenode/x", {}, NotASinkError, "hdfs://namenode/x is not served"),
        ("https://host/x", {}, NotASinkError, "https://host/x is not served"),
        ("s3://", {}, NotASinkError, "names no bucket"),
        ("s3://bucket/a/../b", {}, NotASinkError, "cannot be a part of the prefix"),
        ("s3://bucket/a%20b", {}, NotASinkError, "cannot be a part of the prefix"),
        ("s3://bucket/x", {"aws_nonsense": "hush"}, ConfigError, "storage_options: no client for s3://bucket"),
        (
            "s3://bucket/x",
            {"pool_max_idle_per_host": "hush"},
            ConfigError,
            "storage_options: no client for s3://bucket",
        ),
        ("s3://bucket/x", {"aws_allow_http": "hush"}, ConfigError, "storage_options: no client for s3://bucket"),
        ("s3://bucket/x", {"aws_region": 7}, ConfigError, "storage_options: names and values are texts"),
        ("/tmp/x", {"aws_region": "x"}, ConfigError, "storage_options are for an object store"),
    ],
)
def test_what_is_not_served_is_refused_at_once(
    uri: str, options: dict[str, str], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match) as caught:
        ParquetSink(uri, storage_options=options)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("value", ["hush", "1", "yes", ""])
@pytest.mark.parametrize("name", ["allow_http", "http2_only", "aws_skip_signature", "AWS_DISABLE_TAGGING"])
def test_a_switch_is_true_or_false(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf'storage_options: {name.lower()} must be "true" or "false"$'):
        ParquetSink(URI, storage_options={name: value})
    for value_of_any_case in ("true", "False"):
        ParquetSink(URI, storage_options={name: value_of_any_case, "timeout": "1 min 30 s"})


@pytest.mark.parametrize("value", ["hush", "30", "-1 s", "0 s", "25 h", "3 s and more", "", "5 weeks"])
@pytest.mark.parametrize("name", ["timeout", "retry_timeout"])
def test_a_time_has_a_unit_and_bounds(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"storage_options: {name} must be (a time with its unit|from 1 ms)"):
        ParquetSink(URI, storage_options={name: value})


def test_an_option_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="storage_options: TIMEOUT and timeout are one option: give it once"):
        ParquetSink(URI, storage_options={"timeout": "1 s", "TIMEOUT": "1 s"})


@pytest.mark.parametrize("uri", ["gs://bucket/x", "az://container/x", "s3a://bucket/x"])
def test_other_stores_have_clients(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "tester")
    assert ParquetSink(uri).uri == uri


def test_the_extra_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "instride.spark.parquet._object_storage")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'pip install "instride\[s3\]"'):
        ParquetSink(URI)


ENDPOINTS = [
    "minio:9000",
    "localhost",
    "http:/minio:9000",
    "http://",
    "",
    " http://minio",
    "http://mi nio",
    "http://m:x",
]
ENDPOINTS += [
    "http://minio?hush",
    "http://minio#hush",
    "127.0.0.1:9/hush@",
    "http://user:hu/hush@minio:9",
    "http://mïnio",
]


@pytest.mark.parametrize(
    "name", ["aws_endpoint", "AWS_ENDPOINT_URL_S3", "endpoint", "azure_storage_endpoint", "base_url"]
)
def test_an_endpoint_is_a_url_or_refused_by_its_name(name: str) -> None:
    """The client would panic, which is no Exception, with the first request."""
    for endpoint in ENDPOINTS:
        with pytest.raises(
            ConfigError, match=rf"^storage_options: {name.lower()} must begin with http:// or"
        ) as caught:
            ParquetSink(URI, storage_options={name: endpoint})
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["http://user:p@hush@127.0.0.1:9000/", "HTTPS://minio", "http://[::1]:9000"])
def test_an_endpoint_that_is_a_url_is_taken(endpoint: str) -> None:
    assert ParquetSink(URI, storage_options={"aws_endpoint": endpoint}).uri == URI


@pytest.mark.parametrize("value", ["hush\n", "hu\nsh", "hush\r", "\0", "\x7f"])
@pytest.mark.parametrize(
    "name", ["aws_access_key_id", "aws_session_token", "user_agent", "aws_endpoint", "timeout", "allow_http"]
)
def test_no_option_holds_control_characters(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^storage_options: {name} holds a control character, such as") as caught:
        ParquetSink(URI, storage_options={name: value})
    assert "hush" not in str(caught.value)


def _all_requests(place: Place, tmp_path: Path, options: dict[str, str] | None = None) -> list[Callable[[], object]]:
    storage = module.object_storage(place.uri, place.options | {"retry_timeout": "1 ms"} | (options or {}))
    file = FileInfo(path="k", rows=3, bytes=1_000, attempt=0)
    others = [lambda: storage.appeared("k"), lambda: storage.opened(file).read()]
    return [*_requests(place, tmp_path, options).values(), *others]


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_ACCESS_KEY_ID", "key\n"), ("AWS_SESSION_TOKEN", "hush\n"), ("AWS_ENDPOINT", "minio:9000")],
)
def test_what_the_environment_gives_and_no_request_can_hold_is_a_typed_error(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
) -> None:
    """As where a file with a newline at its end was the source. The client panics."""
    monkeypatch.setenv(name, value)
    place.options.pop(name.lower(), None)
    for call in _all_requests(place, tmp_path):
        with pytest.raises(
            SinkError, match=r"no request can be made: check the endpoint .* the credentials "
        ) as caught:
            call()
        assert not caught.value.retriable
        assert "hush" not in str(caught.value)
    storage = module.object_storage(place.uri, place.options)
    with pytest.raises(NoRemovalError):
        storage.remove("k")
    assert "no request can be made" in caplog.text


def test_every_request_is_made_where_panics_and_forks_are_seen() -> None:
    """Each call of obstore is inside a `with _asking():`."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.With) and ast.unparse(node.items[0]) == "_asking()"
    ]
    inside = {ast.unparse(node.func) for each in guarded for node in ast.walk(each) if isinstance(node, ast.Call)}
    found = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    requests = {name for name in found if re.fullmatch(r"obstore\.\w+", name)}
    assert requests == {f"obstore.{name}" for name in StoreCalls.WATCHED}
    assert requests <= inside
    assert len([name for name in found if name in requests]) == len(guarded)


FORKED = """
import json, os, signal, sys
from instride.errors import SinkError
from instride.records import TopicPartition
from instride.spark.parquet import ParquetSink

options = json.loads(sys.argv[1])
used = ParquetSink("s3://bucket/x", storage_options=options)

def ask(sink):
    try:
        print(sink.positions([TopicPartition("t", 0)]), flush=True)
    except SinkError as error:
        print(type(error).__name__, error.retriable, error, flush=True)

def in_a_child(what):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        what()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

in_a_child(lambda: ask(used))
ask(used)
in_a_child(lambda: ask(used))
in_a_child(lambda: ask(ParquetSink("s3://bucket/x", storage_options=options)))
in_a_child(lambda: in_a_child(lambda: ask(used)))
ask(used)
"""


def test_a_process_that_is_forked_after_a_request_is_told_so(s3: S3Server) -> None:
    """Its requests would wait for threads that it does not have. One that is forked before the first may make some."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, json.dumps(options_for(s3.endpoint))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    lines = done.stdout.splitlines()
    fine = "{TopicPartition(topic='t', partition=0): None}"
    assert [line for line in lines if line == fine] == [fine] * 3
    assert [lines[place] for place in (0, 1, -1)] == [fine] * 3
    for line in lines[2:-1]:
        assert re.match(
            'SinkError False cannot (read|list) s3://bucket/x.*: this process was forked .* "spawn" or', line
        )
    assert len(lines) == 6


@pytest.mark.parametrize("uri", ["s3://bucket/KEY:hush@x", "s3://bucket/x;hush", "s3://bucket/hush/\n/x", "s3:///\n"])
def test_a_prefix_that_is_refused_is_not_shown(uri: str) -> None:
    """A newline was none of the letters of any URI, and the message of that showed all."""
    with pytest.raises(NotASinkError) as caught:
        module.object_storage(uri, {})
    assert re.search(r"""^s3://(bucket)?: (':'|';'|'\\n'|what follows is no bucket's name).""", str(caught.value))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3a://KEY:hush@bucket/x",
        "s3://KEY:hu/hush@bucket/x",
        "s3://hush@bucket/x",
        "S3:///KEY:hush@bucket",
        "gs://bucket:hush/x",
        "az://hush@account/x",
        "abfss://container:hush@account.dfs.core.windows.net/x",
        "abfs://a@hush@account/x",
        "s3://buc%20hush/x",
        "s3://bucket/x?secret=hush",
        "az://container/x?sv=1&sig=hush",
        "s3://bucket/x#hush",
        "s3://bucket?hush",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_shown(uri: str) -> None:
    """The client would pass them over."""
    calls: list[Callable[[str], object]] = [
        ParquetSink,
        read_table,
        vacuum,
        lambda each: DefaultSource({"path": each}).schema(),
    ]
    for call in calls:
        with pytest.raises(NotASinkError, match="storage_options or in the environment") as caught:
            call(uri)
        assert "hush" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_a_container_of_an_account_is_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "abfss://container@account.dfs.core.windows.net/x"
    assert ParquetSink(uri).uri == uri


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("GET http://user:p@hu@hush@host:9/x in", "GET http://***@host:9/x in"),
        ("(https://host/x?sv=1&sig=hush) - HTTP error", "(https://host/x?*** - HTTP error"),
        ("is this a question? http://host/a@b?", "is this a question? http://host/a@b?***"),
    ],
)
def test_what_the_client_says_is_shown_without_users_and_queries(said: str, shown: str) -> None:
    assert module._reason(GenericError(said)) == shown


def test_when_an_object_appeared_the_store_says(place: Place) -> None:
    place.go_on()
    storage = module.object_storage(URI, place.options)
    assert storage.appeared("_instride/sink.json") == datetime(2013, 1, 1, 12, tzinfo=UTC).timestamp()
    assert storage.appeared("_instride/absent") is None
