"""What writes docs/api: every public name is there with its signature and words, from the source alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from api_reference.__main__ import PUBLIC, main, pages
from api_reference.page import page
from api_reference.source import Source
from instride import Consumer, ConsumerRecords, OffsetLedger, RangeConsumer

MODULE = '''
"""A module of two."""
from typing import Final, Protocol, TYPE_CHECKING
if TYPE_CHECKING:
    from other import Far
__all__ = ["LIMIT", "Near", "Far", "both"]
LIMIT: Final = 3
"""The most of it."""
class _Base:
    def kept(self) -> None:
        """From the base."""
    def hidden(self) -> None:
        """Of the base, and overridden."""
class Near(_Base, Protocol):
    """It is near."""
    count: int = 1
    _secret: str = ""
    def hidden(self, a: int, /, b: int = 2, *c: str, d: "int | None" = None, **e: object) -> str:
        """Overridden."""
        return ""
    def _private(self) -> None: ...
    @property
    def name(self) -> str:
        """Who."""
        return ""
    @property
    def place(self) -> "int | str": ...
    def __init__(self, count: int) -> None: ...
async def both(
    first_of_a_long_list: Near, second_of_a_long_list: Far, third_of_the_list: Near, *, last_of_the_list: Far
) -> int:
    """Of the two."""
    return 0
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(MODULE)
    (tmp_path / "other.py").write_text('"""Untyped."""\nclass Far:\n    """Not this."""\n')
    (tmp_path / "other.pyi").write_text('class Far:\n    """It is far."""\n')
    return tmp_path


def test_what_is_public_is_told_with_its_signature_and_words(folder: Path) -> None:
    text = page(Source(folder), "one")
    assert "LIMIT: Final = 3" in text
    assert "The most of it." in text
    assert "class Near(Protocol)" in text
    assert "| `count` | `int` | `1` |" in text
    assert "Near.hidden(a: int, b: int = 2, *c: str, d: 'int | None' = None, **e: object) -> str" in text
    assert "Near.name: str\n" in text
    assert "| `place` | `'int \\| str'` |  |" in text
    assert "Near(count: int)\n" in text
    assert "From the base." in text
    assert "It is far." in text, "the .pyi speaks for its module"
    assert "both(\n    first_of_a_long_list: Near,\n" in text


def test_what_is_private_or_overridden_is_not(folder: Path) -> None:
    text = page(Source(folder), "one")
    assert "_private" not in text
    assert "_secret" not in text
    assert "Of the base, and overridden." not in text


SOURCE = Path(__file__).parents[2] / "src"
COMMAND = {"main"}
"""What a module offers that is run by `python -m` and not imported."""


def doors(source: Path) -> dict[str, set[str]]:
    """By module that a user could take for public (neither it nor what it is in has an underscore): its names."""
    found = {}
    for path in (source / "instride").rglob("*.py"):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        if "._" not in name:
            listed = re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
            found[name] = (set(ast.literal_eval(listed[1])) if listed else {"(no __all__)"}) - COMMAND
    return found


def undocumented(source: Path) -> set[str]:
    """Public names that have no entry: neither on a page of their module nor on that of the package around it."""
    everywhere = doors(source)
    found = set()
    for module, names in everywhere.items():
        package = module.rpartition(".")[0]
        around = set(importlib.import_module(package).__all__) if package in PUBLIC else set()
        found |= {f"{module}.{name}" for name in names - around} if module not in PUBLIC else set()
    return found


def test_what_has_no_underscore_is_in_the_reference() -> None:
    assert undocumented(SOURCE) == set()
    assert set(PUBLIC) - set(doors(SOURCE)) == {"pytest_instride"}


@pytest.mark.parametrize(
    "path",
    [
        "processing/engine.py",
        "spark/run.py",
        "spark/parquet/files.py",
        "errors/other.py",
        "testing/tool.py",
        "other.py",
    ],
)
def test_a_new_name_without_underscore_is_noticed(tmp_path: Path, path: str) -> None:
    hidden = ("_processing.py", "spark/_pipeline_loop.py", "spark/_tables/delta.py", "testing/_check/rules/order.py")
    for each in (path, *hidden, "consumer.py", "spark/sink.py"):
        (tmp_path / "instride" / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "instride" / each).write_text('__all__ = ["Consumer"]\n')
    (tmp_path / "instride" / path).write_text('__all__ = [\n    "Novelty",\n]\n')
    new = f"instride.{path.removesuffix('.py').replace('/', '.')}"
    assert undocumented(tmp_path) == {f"{new}.Novelty"}


@pytest.mark.parametrize("kind", [Consumer, RangeConsumer, OffsetLedger, ConsumerRecords])
def test_every_public_method_has_its_entry(kind: type) -> None:
    text = pages(Source(Path(__file__).parents[2] / "src"))["instride.md"]
    methods = [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]
    assert len(methods) >= 5
    assert [name for name in methods if f"\n### {kind.__name__}.{name}\n" not in text] == []


@pytest.mark.requirement("surface/api-reference")
@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_words(name: str) -> None:
    """But constructors, of which their class has spoken; errors whose name says it; what carries out a protocol."""
    text = pages(Source(Path(__file__).parents[2] / "src"))[f"{name}.md"]
    silent = []
    for entry in re.split(r"\n(?=##+ )", text)[1:]:
        title, *body = re.sub(r"```.*?```", "", entry, flags=re.DOTALL).strip().splitlines()
        obvious = (
            title.endswith(("()", "Error"))
            or title == "## INVARIANTS"
            or (title.startswith("### ") and name != "instride")
        )
        if not obvious and not any(line and not line.startswith("|") for line in body):
            silent.append(title)
    assert silent == []


def test_what_is_only_promised_is_an_error(folder: Path) -> None:
    (folder / "bad.py").write_text('__all__ = ["nothing"]\n')
    (folder / "silent.py").write_text("x = 1\n")
    with pytest.raises(LookupError, match="bad has no nothing"):
        page(Source(folder), "bad")
    with pytest.raises(ValueError, match="silent has no __all__"):
        page(Source(folder), "silent")
    with pytest.raises(FileNotFoundError, match="no module gone"):
        page(Source(folder), "gone")


@pytest.mark.requirement("surface/api-reference")
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported_and_has_its_entry(name: str) -> None:
    if name.startswith("instride.spark"):
        pytest.importorskip("pyspark")
    module, text = importlib.import_module(name), pages(Source(Path(__file__).parents[2] / "src"))[f"{name}.md"]
    for each in module.__all__:
        assert hasattr(module, each)
        assert f"\n## {each}\n" in text


def test_pages_that_are_out_of_date_are_found_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_reference.__main__.PUBLIC", ("one",))
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text('"""First."""\n__all__ = []\n')
    assert main([], root=tmp_path) == 0
    (tmp_path / "docs" / "api" / "gone.md").write_text("of a module that is gone")
    assert main(["--check"], root=tmp_path) == 1
    assert "make docs" in capsys.readouterr().err
    assert main([], root=tmp_path) == 0
    assert main(["--check"], root=tmp_path) == 0
    assert sorted(path.name for path in (tmp_path / "docs" / "api").iterdir()) == ["index.md", "one.md"]
