"""`python -m instride.testing.simulate`: its output, and its exit status."""

from __future__ import annotations

import pytest

from instride.core.network.commits import Commits
from instride.testing.simulate import main


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", "3", "--seed", "40"]) == 0
    said = capsys.readouterr().out
    assert "3 histories, none wrong" in said
    assert "ownership: never taken" in said


def test_a_wrong_history_ends_it_with_its_transcript_and_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Commits, "outstanding", lambda commits, partition: False)
    assert main(["--histories", "200"]) == 1
    said = capsys.readouterr().out
    assert "***     exactly once" in said, "the violation stands in the transcript"
    assert "again: python -m instride.testing.simulate --seed " in said


def test_a_transcript_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--transcript", "--seed", "1"]) == 0
    assert "group is Stable, generation 1" in capsys.readouterr().out
