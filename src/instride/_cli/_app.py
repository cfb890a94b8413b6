"""The verbs of `instride`, put together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from instride._cli.dead_letters import app as dead_letters
from instride._cli.doctor import doctor
from instride._cli.run import run

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(doctor)
app.command()(run)
app.add_typer(dead_letters, name="dead-letters")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(version("instride"))
        raise typer.Exit


@app.callback()
def _instride(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,  # noqa: FBT002
) -> None:
    """A Kafka consumer for Python that keeps its stride through rebalances."""
