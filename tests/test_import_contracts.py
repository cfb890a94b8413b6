"""`lint-imports` looks at every module: none is forgotten at the root."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_and_package_of_the_root_has_a_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    named = {
        name for each in contracts for key in ("source_modules", "modules", "layers") for name in each.get(key, ())
    }
    covered = {part.strip() for name in named for part in name.split("|")}
    package = ROOT / "src" / "instride"
    modules = {f"instride.{path.stem}" for path in package.glob("*.py") if path.stem != "__init__"}
    packages = {f"instride.{path.parent.name}" for path in package.glob("*/__init__.py")}
    assert modules | packages <= covered
