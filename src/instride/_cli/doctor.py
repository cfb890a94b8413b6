"""`instride doctor`: what is installed here, and whether the compiled decoder runs."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires, version

import typer

__all__ = ["doctor"]

_COMPILED = ("instride._wire.batch_headers", "instride._wire.record_index", "instride._wire.decoder")
_OTHERS = ("pyarrow", "pyspark", "confluent-kafka", "gssapi")


def doctor() -> None:
    """Show versions, and whether records are decoded by compiled code. The exit status is 1 where they are not."""
    lines = [("Python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")]
    lines += [(name, _version(name)) for name in ("instride", *_needed(), *_OTHERS)]
    states = {name: _state(name) for name in _COMPILED}
    lines += states.items()
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        typer.echo(f"{name:{width}}  {text}")
    if set(states.values()) != {"compiled"}:
        raise typer.Exit(code=1)


def _needed() -> Iterator[str]:
    """The packages that instride itself needs, without its extras."""
    for each in requires("instride") or ():
        if "extra ==" not in each:
            yield each.split(">")[0].split("<")[0].split("=")[0].strip()


def _version(name: str) -> str:
    try:
        return version(distribution(name).metadata["Name"])
    except PackageNotFoundError:
        return "not installed"


def _state(name: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the uncompiled form warns; this line says it
        try:
            import_module(name)
        except ImportError as error:
            return f"cannot be imported: {error}"
    path = sys.modules[name].__file__ or ""
    return "NOT compiled: slow" if path.endswith(".py") else "compiled"
