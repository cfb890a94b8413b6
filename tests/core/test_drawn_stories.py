"""docs/rebalance-in-pictures.md tells the two-step revoke as the ownership table has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import draw_stories
from draw_stories import Step, Story, drawn, main
from instride._core.ownership import OwnershipInput

FRAME = f"Before.\n{draw_stories.BEGIN}\n{draw_stories.END}\nAfter.\n"


@pytest.mark.requirement("KIP-983/10")
def test_the_page_is_what_the_code_says() -> None:
    assert main(["--check"]) == 0, "run make docs"


def test_the_states_of_a_story_are_the_tables() -> None:
    requested = Step("net", "app", "RevocationRequested", OwnershipInput.REVOCATION_REQUESTED)
    polled = Step("you", "app", "poll", OwnershipInput.POLL_STARTED)
    page = drawn(FRAME, [Story("It goes", "In two polls.", (requested, polled))])
    assert page.startswith("Before.\n")
    assert page.endswith("After.\n")
    assert "    net->>app: RevocationRequested\n    Note over app: REVOCATION_REQUESTED: p is REVOKE_NEXT\n" in page
    assert "    Note over net: POLL_STARTED: p is COMPLETING\n" in page
    assert "    REVOKE_NEXT --> REVOKE_THEREAFTER: DELAYED\n" in page


def test_a_story_that_the_table_does_not_have_is_refused() -> None:
    story = Story("It ends twice", "Never.", (Step("net", "app", "done", OwnershipInput.COMPLETED),))
    with pytest.raises(ValueError, match=r"It ends twice.*OWNED has no row for COMPLETED"):
        drawn(FRAME, [story])


def test_a_page_that_is_out_of_date_is_found_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "rebalance-in-pictures.md"
    page.write_text(FRAME, encoding="utf-8")
    monkeypatch.setattr(draw_stories, "PAGE", page)
    assert main(["--check"]) == 1
    assert "make docs" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
