"""The options of `format("instride-parquet")`, and which of them Spark may show.

Laws
1. Spark shows a DataFrame's options in what it tells of some commands (a temporary view, say): in the UI, the REST
   interface and the event log. There it masks a value where the name, or the value, has "secret", "password" or "token"
   in it (`spark.redaction.regex`), or the name has "url" (`spark.sql.redaction.options.regex`).
2. A secret whose name Spark would not mask is refused: at `load`, or where the user gave a schema at the first query,
   since Spark does not ask before. `storage.secret.NAME` means `storage.NAME`, and is masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from instride.errors import ConfigError

__all__ = ["ParquetOptions", "parse_parquet_options", "spark_option"]

_STORAGE: Final = "storage."
_SECRET: Final = "storage.secret."  # noqa: S105 - a name
# Azure's keys of accounts and of shared access, Google's of a service account, and S3's that the customer keeps.
_SHOWN: Final = re.compile(r"(?!.*secret)(.*_)?((access|account|master|sas)_key|sse_customer_key.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """folder: the sink's path or URI. columns: None for all. storage: of the store, may hold secrets: in no repr."""

    folder: str
    columns: list[str] | None
    storage: Mapping[str, str] = field(repr=False)


def spark_option(name: str) -> str:
    """What the source calls an option of the store."""
    return f"{_SECRET if _SHOWN.fullmatch(name) else _STORAGE}{name}"


def parse_parquet_options(options: Mapping[str, str]) -> ParquetOptions:
    """Spark gives the options' names in lower case. Raises ConfigError, which names one."""
    given = {name.lower(): value for name, value in options.items()}
    storage: dict[str, str] = {}
    for name in [each for each in given if each.startswith(_STORAGE)]:
        plain = name.removeprefix(_SECRET).removeprefix(_STORAGE)
        if not name.startswith(_SECRET) and _SHOWN.fullmatch(plain):
            raise ConfigError(
                f"{name} is a secret, and Spark may show it in its UI and event log: call it {_SECRET}{plain}, which "
                "Spark masks, or give it in the environment of driver and executors"
            )
        if not plain:
            raise ConfigError(f"{name} names no option of the store: give {name}NAME")
        if plain in storage:
            raise ConfigError(f"{_SECRET}{plain} and {_STORAGE}{plain} are one option: give it once")
        storage[plain] = given.pop(name)
    unknown = sorted(set(given) - {"path", "columns"})
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}: instride-parquet takes columns and storage.NAME")
    if "path" not in given:
        raise ConfigError("give the sink's folder, and one only: load(folder)")
    columns = [name.strip() for name in given["columns"].split(",")] if "columns" in given else None
    return ParquetOptions(folder=given["path"], columns=columns, storage=storage)
