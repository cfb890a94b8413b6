"""Many writers, zombies, retries and crashes in any order: each offset is there once, by one winner per range."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from parquet_help import PARTITION, Crash, DeadFrom, SystemCalls, batches, commit, rows, span, write

from instride.errors import MissingDataError
from instride.spark.parquet import Manifest, ParquetSink, compact, read_manifests, vacuum
from instride.spark.sink import CommitStatus, OutputRange, WrittenRange

WRITERS = st.integers(0, 3)
FIRST = 10


@dataclass(frozen=True)
class Written:
    """A job's output, which anybody may commit at any later time, any number of times."""

    job: str
    written: WrittenRange


class Writers(RuleBasedStateMachine):
    """Drivers that share a sink. A dead one comes back as a new one that knows nothing."""

    outputs = Bundle("outputs")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        # Processes die here, machines do not; and syncing is nearly all that this would wait for.
        self.patch.setattr(os, "fsync", lambda _: None)
        self.folder = self.home / "out"
        self.sinks = {number: ParquetSink(self.folder) for number in range(4)}
        self.jobs = 0
        self.winners: dict[str, OutputRange] = {}
        self.committed: set[str] = set()
        self.losers: set[str] = set()
        self.chain: dict[int, Manifest] = {}
        self.compacted = 0
        self.reached = 0

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.home)

    @rule(target=outputs, writer=WRITERS, length=st.integers(1, 6), back=st.integers(-2, 4), rows_=st.booleans())
    def work(self, writer: int, length: int, back: int, rows_: bool) -> Written:
        """A job for the range after the position, or, by a writer that is behind or ahead, near it."""
        position = self.sinks[writer].positions([PARTITION])[PARTITION] or FIRST
        start = max(0, position - max(back, 0) if back < 3 else position)
        return self._written(writer, f"job{self._count()}", span(start, start + length), attempt=0, rows_=rows_)

    @rule(target=outputs, writer=WRITERS, first=outputs)
    def try_again(self, writer: int, first: Written) -> Written:
        """Another attempt of the same job, as after a lost executor or by speculation."""
        return self._written(writer, first.job, first.written.range, attempt=1, rows_=bool(first.written.files))

    @rule(target=outputs, writer=WRITERS, at=st.integers(0, 12))
    def die_at_work(self, writer: int, at: int) -> object:
        """An executor that dies while it writes the next range."""
        position = self.sinks[writer].positions([PARTITION])[PARTITION] or FIRST
        job = f"job{self._count()}"
        with pytest.MonkeyPatch.context() as patch:
            DeadFrom(at).install(patch)
            try:
                output = write(self.sinks[writer], span(position, position + 3), job)
            except Crash:
                return multiple()
        return Written(job, output)

    @rule(writer=WRITERS, output=outputs)
    def commit(self, writer: int, output: Written) -> None:
        self._settle(writer, output)

    @rule(writer=WRITERS, output=outputs, at=st.integers(0, 12))
    def die_in_commit(self, writer: int, output: Written, at: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            DeadFrom(at).install(patch)
            try:
                self._settle(writer, output)
            except Crash:
                self.sinks[writer] = ParquetSink(self.folder)
        self._learn()

    @rule(writer=WRITERS, output=outputs, other=outputs, between=st.integers(0, 12))
    def commit_within_a_commit(self, writer: int, output: Written, other: Written, between: int) -> None:
        """Another driver commits while this one is between two of its system calls."""
        with pytest.MonkeyPatch.context() as patch:
            SystemCalls(between, lambda: self._settle((writer + 1) % 4, other)).install(patch)
            self._settle(writer, output)

    @rule(writer=WRITERS, output=outputs, at=st.integers(0, 12))
    def stopped_in_a_commit(self, writer: int, output: Written, at: int) -> None:
        """Others go on, compact, and delete what is replaced, while this one is stopped between two system calls."""
        with pytest.MonkeyPatch.context() as patch:
            SystemCalls(at, lambda: self._others_go_on(ParquetSink(self.folder))).install(patch)
            self._settle(writer, output)

    def _others_go_on(self, sink: ParquetSink) -> None:
        for _ in range(2):
            position = sink.positions([PARTITION])[PARTITION] or FIRST
            job = f"job{self._count()}"
            commit(sink, job, write(sink, span(position, position + 2), job))
            self._learn()
        self._keep_small(keep_for=0)

    @rule(keep_for=st.sampled_from([0, 3600]))
    def keep_small(self, keep_for: int) -> None:
        self.sinks[0].writer()
        self._keep_small(keep_for)

    def _keep_small(self, keep_for: float) -> None:
        self._learn()
        compact(self.folder, target_bytes=4_000)
        self.compacted = len(self.chain)
        vacuum(self.folder, keep_for=keep_for)

    @rule()
    def vacuum(self) -> None:
        self.sinks[0].writer()
        vacuum(self.folder)

    @invariant()
    def readers_see_one_winner_for_each_range(self) -> None:
        if not self.folder.exists():
            return
        self._learn()
        chain = [self.chain[sequence] for sequence in range(1, len(self.chain) + 1)]
        assert all(one.end == other.start for one, other in pairwise(chain))
        expected = Counter(
            (3, offset, manifest.job)
            for manifest in chain
            if manifest.files
            for offset in range(manifest.start, manifest.end)
        )
        assert Counter(rows(self.folder)) == expected
        there = {manifest.job: manifest for manifest in chain}
        assert len(there) == len(chain)
        assert all((there[job].start, there[job].end) == (r.start, r.end) for job, r in self.winners.items())
        assert not self.losers & set(there)

    def _count(self) -> int:
        self.jobs += 1
        return self.jobs

    def _written(self, writer: int, job: str, output: OutputRange, *, attempt: int, rows_: bool) -> Written:
        given = batches(output, job) if rows_ else iter(())
        written = self.sinks[writer].writer().write(output, job=job, attempt=attempt, batches=given)
        return Written(job, written)

    def _settle(self, writer: int, output: Written) -> None:
        reached = self.reached
        try:
            outcome = commit(self.sinks[writer], output.job, output.written)
        except MissingDataError:
            # It was in conflict before, so its files were dropped; and it can never come in.
            assert output.job in self.losers
            return
        if outcome.is_in:
            assert output.job not in self.losers
            if outcome.status is CommitStatus.COMMITTED:
                assert output.job not in self.committed
                self.committed.add(output.job)
            self.winners[output.job] = output.written.range
        elif self._is_forgotten(output.job):
            assert outcome.position > output.written.range.start
        elif outcome.position > output.written.range.start:
            assert output.job not in self.winners
            self.losers.add(output.job)
        # Another may have gone on within this commit, so its result is only as new as its beginning.
        assert outcome.position >= reached
        self.reached = max(self.reached, outcome.position)

    def _learn(self) -> None:
        """A commit that died may have come in; then it must stay in."""
        for manifest in read_manifests(self.folder).get(PARTITION, []):
            assert self.chain.setdefault(manifest.sequence, manifest) == manifest
            self.winners[manifest.job] = span(manifest.start, manifest.end)

    def _is_forgotten(self, job: str) -> bool:
        """Came in, and is behind a checkpoint: a repeat may be told that others have gone on."""
        return any(each.job == job and sequence < self.compacted for sequence, each in self.chain.items())


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

GOAL = 600


def _race(folder: str, name: str, step: int, gate: object, won: object) -> None:
    """One process: ask, write, commit, until the goal is reached. Says how many of its jobs came in."""
    gate.wait()  # type: ignore[attr-defined]
    sink, count, job = ParquetSink(folder), 0, 0
    while (reached := sink.positions([PARTITION])[PARTITION] or 0) < GOAL:
        job += 1
        output = span(reached, min(reached + step, GOAL))
        count += commit(sink, f"{name}{job}", write(sink, output, f"{name}{job}")).is_in
    won.put(count)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_processes_race_and_every_offset_is_there_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate, won = context.Barrier(3), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(tmp_path / "out"), name, step, gate, won))
        for name, step in [("a", 3), ("b", 3), ("c", 4)]
    ]
    for racer in racers:
        racer.start()
    counts = [won.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
        assert racer.exitcode == 0
        racer.close()
    won.close()
    won.join_thread()
    assert [offset for _, offset, _ in rows(tmp_path / "out")] == list(range(GOAL))
    assert sum(counts) == len(read_manifests(tmp_path / "out")[PARTITION])
    assert max(counts) < sum(counts), "it was a race"
