"""`module:name`: what a command line says of Python objects, and the settings that it is run with."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from instride.errors import ConfigError

__all__ = ["TargetError", "settings_of", "target"]


_NOT_THEIRS = (__file__, importlib.__file__, "<frozen importlib")
"""Files of the frames between a command and the user's code."""
_MISSING = object()


class TargetError(Exception):
    """The user's own code raised. The text says which, with its traceback from the user's first line on."""

    def __init__(self, what: str, error: BaseException) -> None:
        found = error.__traceback__
        while found is not None and found.tb_frame.f_code.co_filename.startswith(_NOT_THEIRS):
            found = found.tb_next
        super().__init__(f"{what}:\n{''.join(traceback.format_exception(type(error), error, found)).rstrip()}")


def target(text: str) -> Any:
    """Imports it, from the working directory too. Raises ConfigError and TargetError."""
    module, colon, name = text.partition(":")
    if not (module and colon and name) or module.startswith("."):
        raise ConfigError(f"{text!r}: write module:name, such as billing:app for what billing.py calls app")
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        raise ConfigError(f"{text!r}: the working folder is gone, perhaps replaced by another of its name") from None
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a module may raise anything
        if _is_missing(error, module):
            raise ConfigError(f"{text!r}: there is no module {error.name!r}, neither in {here} nor installed") from None
        raise TargetError(f"{text!r}: the module {module!r} was not imported", error) from None
    place = module
    for each in name.split("."):
        with _their_code(f"{text!r}: {place} did not give its {each!r}"):  # a module may have a function for that
            value = getattr(found, each, _MISSING)
        if value is _MISSING:
            # Not the value, which may be settings with a password.
            raise ConfigError(f"{text!r}: {place} has no {each!r}; it is of type {type(found).__qualname__}")
        found, place = value, f"{place}.{each}"
    return found


@contextmanager
def _their_code(what: str) -> Iterator[None]:
    """It may raise anything."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001
        raise TargetError(what, error) from None


def _is_missing(error: BaseException, module: str) -> TypeGuard[ModuleNotFoundError]:
    """Else it is there, and imports one that is not."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def settings_of(text: str | None, bootstrap_servers: str | None, group_id: str | None) -> dict[str, Any]:
    """text: the target of a mapping, or of a function that returns one. Options of the command line go before it."""
    found: Any = {} if text is None else target(text)
    if callable(found):
        with _their_code(f"--settings {text}: the function raised an error"):
            found = found()
    if not isinstance(found, Mapping):
        raise ConfigError(f"--settings {text}: it must be a dict, or a function that returns one, not {type(found)}")
    if any(not isinstance(each, str) for each in found):
        raise ConfigError(f"--settings {text}: it must be a dict of names, and some keys are no text")
    given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    return {**found, **{name: value for name, value in given.items() if value is not None}}
