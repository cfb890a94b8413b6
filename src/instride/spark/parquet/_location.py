"""From the path or URI that a user gives to the storage behind it: the one place that knows which are served."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from instride.errors import ConfigError, NotASinkError
from instride.spark.parquet._local_storage import LocalStorage
from instride.spark.parquet._storage import Storage

__all__ = ["is_local", "local_folder", "storage_at"]

OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""The schemes of stores that can create an object only if it is absent."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def storage_at(place: str | Path, storage_options: Mapping[str, str] | None = None) -> Storage:
    """The storage at a path or URI; nothing is read or made. storage_options: for an object store's client.

    Raises NotASinkError for a URI that is not served, ConfigError for options that do not fit, or where the extra
    "s3" is not installed.
    """
    scheme = _scheme_of(place)
    if scheme in OBJECT_STORES:
        from instride.spark.parquet._object_storage import object_storage  # noqa: PLC0415 - needs an extra

        return object_storage(str(place), _checked(storage_options or {}))
    if scheme not in ("", "file"):
        served = ", ".join(f"{each}://" for each in OBJECT_STORES)
        raise NotASinkError(f"{place} is not served: give a local path or file: URI, or one that begins with {served}")
    if storage_options:
        raise ConfigError(f"storage_options are for an object store, and {place} is a local folder: leave them out")
    return LocalStorage(local_folder(place))


def is_local(place: str | Path) -> bool:
    """Whether a path or URI is one of this machine's file systems."""
    return _scheme_of(place) in ("", "file")


def local_folder(place: str | Path) -> Path:
    """The folder of a local path or a file: URI. Raises NotASinkError for any other URI: it would be a folder "s3:"."""
    if not is_local(place):
        raise NotASinkError(f"{place} is not on a local file system, and its data files would be: give a folder")
    text = str(place)
    # file:/data and file:///data are the same.
    return Path("/" + text[5:].lstrip("/")) if _scheme_of(text) else Path(text).absolute()


def _scheme_of(place: str | Path) -> str:
    # pathlib makes "s3:/bucket" of "s3://bucket".
    found = _SCHEME.match(str(place))
    return found[1].lower() if found else ""


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigError(f'storage_options: names and values are texts ("true", "30s"); that of {name!r} is not')
    return dict(options)
