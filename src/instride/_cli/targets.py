"""`module:name`: what a command line says of Python objects, and the settings that it is run with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from instride.errors import ConfigError

__all__ = ["settings_of", "target"]


def target(text: str) -> Any:
    """Imports it, from the working directory too. Raises ConfigError, and whatever the module raises."""
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
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and imports one that is not
        raise ConfigError(f"{text!r}: there is no module {error.name!r}, neither in {here} nor installed") from None
    place = module
    for each in name.split("."):
        if not hasattr(found, each):
            # Not the value, which may be settings with a password.
            raise ConfigError(f"{text!r}: {place} has no {each!r}; it is of type {type(found).__qualname__}")
        found, place = getattr(found, each), f"{place}.{each}"
    return found


def settings_of(text: str | None, bootstrap_servers: str | None, group_id: str | None) -> dict[str, Any]:
    """text: the target of a mapping, or of a function that returns one. Options of the command line go before it."""
    found: Any = {} if text is None else target(text)
    if callable(found):
        found = found()
    if not isinstance(found, Mapping):
        raise ConfigError(f"--settings {text}: it must be a dict, or a function that returns one, not {type(found)}")
    if any(not isinstance(each, str) for each in found):
        raise ConfigError(f"--settings {text}: it must be a dict of names, and some keys are no text")
    given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    return {**found, **{name: value for name, value in given.items() if value is not None}}
