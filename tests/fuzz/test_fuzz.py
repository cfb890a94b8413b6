"""The kept corpus, and a little more of `make fuzz`: a number of mutations, not a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.__main__ import CORPUS, load, mutated, try_out
from fuzz.targets import TARGETS


def test_every_target_has_something_in_the_corpus_that_is_read() -> None:
    corpus = load(CORPUS)
    assert {name for name, _ in corpus} == set(TARGETS)
    for name, data in corpus:
        TARGETS[name](data)


@pytest.mark.requirement("surface/fuzz")
def test_mutated_bytes_are_read_or_refused(tmp_path: Path) -> None:
    dice, corpus = random.Random(17), load(CORPUS)
    for _ in range(20_000):
        name, data = dice.choice(corpus)
        assert try_out(name, mutated(dice, data), tmp_path)


def test_a_finding_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: bytes) -> None:
        raise LookupError("a bug")

    monkeypatch.setitem(TARGETS, "records", fails)
    assert not try_out("records", b"bytes", tmp_path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"records\nbytes"]
