"""docs/tables.md shows the tables that the code runs on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from instride._core.network import group
from instride._core.network.group import GroupInput, GroupState

TOOL = Path(__file__).resolve().parents[2] / "tools" / "draw_tables.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_tables", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_says(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0, "run python tools/draw_tables.py"


def test_a_page_that_is_out_of_date_is_found_and_written_anew(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "tables.md"
    page.write_text(tool.PAGE.read_text(encoding="utf-8") + "\nWords after it stay.\n", encoding="utf-8")
    monkeypatch.setattr(tool, "PAGE", page)
    table = {**group.TRANSITIONS, (GroupState.STABLE, GroupInput.SYNCED): GroupState.UNJOINED}
    monkeypatch.setattr(group, "TRANSITIONS", table)
    assert tool.main(["--check"]) == 1
    assert "draw_tables" in capsys.readouterr().err
    assert tool.main([]) == 0
    text = page.read_text(encoding="utf-8")
    assert "STABLE --> UNJOINED: SYNCED, LOST" in text
    assert text.endswith("Words after it stay.\n")
    assert tool.main(["--check"]) == 0


def test_a_page_without_markers_is_refused(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="begin"):
        tool.drawn("no markers")
