"""From the path or URI that a user gives to the storage behind it: the one place that knows which are served.

Laws
1. A file: URI is decoded, as `Path.as_uri` has encoded it: it and the path name one folder.
2. A URI holds no credentials. Where it seems to, it is refused, and no message shows them.
3. What is likely meant as another place is refused: it would be made, on each machine, in silence.
4. A worker process keeps its storages, and with them their clients, connections and credentials of a role, from task to
   task. A driver does not: its environment, which may hold credentials, may change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from instride.errors import ConfigError, NotASinkError
from instride.spark.parquet._local_storage import LocalStorage
from instride.spark.parquet._storage import Storage

__all__ = ["is_local", "kept_storage_at", "local_folder", "storage_at"]

OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""The schemes of stores that can create an object only if it is absent."""
_OTHERS: Final = ("file", "s3n", "gcs", "adl", "wasb", "wasbs", "hdfs", "dbfs", "http", "https")

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_USER: Final = re.compile(r"(?<=:/)(/*)[^?#]*@")
_NO_NAME: Final = re.compile(r"[\0\ud800-\udfff]")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_CONTROL: Final = re.compile(r"[\0-\x1f\x7f-\x9f]")
_AROUND: Final = ("\ufeff", "'", '"')
# "./s3:x" is how a folder of such a name is written.
_NO_SLASHES: Final = re.compile(rf"({'|'.join((*OBJECT_STORES, *_OTHERS))})(:(?!/)|//)|[^/]*:/", re.IGNORECASE)


def storage_at(place: str | Path, storage_options: Mapping[str, str] | None = None) -> Storage:
    """The storage at a path or URI; nothing is read or made. storage_options: for an object store's client.

    Raises NotASinkError for a URI that is not served, ConfigError for options that do not fit, or where the extra
    "s3" is not installed.
    """
    _check_spelling(str(place))
    scheme = _scheme_of(place)
    if scheme in OBJECT_STORES:
        from instride.spark.parquet._object_storage import object_storage  # noqa: PLC0415 - needs an extra

        return object_storage(_plain(place), _checked(storage_options or {}))
    if scheme not in ("", "file"):
        served = ", ".join(f"{each}://" for each in OBJECT_STORES)
        raise NotASinkError(
            f"{_shown(place)} is not served: give a local path or file: URI, or one that begins with {served}"
        )
    if storage_options:
        raise ConfigError(
            f"storage_options are for an object store, and {_shown(place)} is a local folder: leave them out"
        )
    return LocalStorage(local_folder(place))


def kept_storage_at(place: str, storage_options: Mapping[str, str] | None = None) -> Storage:
    """As `storage_at`, in a worker process (law 4)."""
    return _kept(os.getpid(), place, tuple(sorted((storage_options or {}).items())))


# One sink has one. A child of a fork has none of its parent's: the number of its process is another.
@lru_cache(maxsize=8)
def _kept(_process: int, place: str, storage_options: tuple[tuple[str, str], ...]) -> Storage:
    return storage_at(place, dict(storage_options))


def is_local(place: str | Path) -> bool:
    """Whether a path or URI is one of this machine's file systems."""
    return _scheme_of(place) in ("", "file")


def local_folder(place: str | Path) -> Path:
    """The folder of a local path or a file: URI. Laws 1 and 3. Raises NotASinkError for any other URI: it would be a
    folder "s3:".
    """
    _check_spelling(str(place))
    if not is_local(place):
        raise NotASinkError(
            f"{_shown(place)} is not on a local file system, and its data files would be: give a folder"
        )
    path = str(place)
    if _scheme_of(path):
        path = "/" + os.fsdecode(unquote_to_bytes(os.fsencode(_path_of(_plain(path))))).lstrip("/")
    # Of other bytes Python makes such characters, which PyArrow cannot turn back.
    if _NO_NAME.search(path):
        raise NotASinkError(f"{path!r} can be no sink: a folder's name is UTF-8, and has no character 0")
    _check_ends(path)
    return Path(path).absolute()


def _check_spelling(place: str) -> None:
    """Law 3. Raises NotASinkError, which does not show the place: law 2, and in what is misspelt nobody knows where."""
    _check_ends(place)
    if _scheme_of(place):
        control = _CONTROL.search(place)
        if control is not None:
            raise NotASinkError(f"a sink's URI holds no control character, and {control[0]!r} is one: leave it out")
    elif _NO_SLASHES.match(place):
        raise NotASinkError(
            "this place looks like a URI that has lost its slashes or its scheme: give SCHEME://BUCKET/PREFIX or "
            "file:///FOLDER, and a local folder by a path that begins with / or ./"
        )


def _check_ends(place: str) -> None:
    for letter in (place[:1], place[-1:]):
        if letter.isspace() or letter in _AROUND:
            raise NotASinkError(f"a sink's folder or URI begins or ends with {letter!r}: give it without that")


def _path_of(uri: str) -> str:
    """Of a file: URI. file:/data, file:///data and file://localhost/data are the same."""
    rest = uri[len("file:") :]
    host, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    if host.lower() not in ("", "localhost"):
        raise NotASinkError(
            f"{_shown(uri)} is on a machine of its own, between the second / and the third: give file:///FOLDER"
        )
    return path


def _scheme_of(place: str | Path) -> str:
    # pathlib makes "s3:/bucket" of "s3://bucket".
    found = _SCHEME.match(str(place))
    return found[1].lower() if found else ""


def _plain(place: str | Path) -> str:
    """A URI without query and fragment. Raises NotASinkError: Law 2."""
    if _QUERY.search(str(place)):
        raise NotASinkError(
            f"{_shown(place)}: a sink's URI holds no ? and no #: credentials are given as storage_options or in the "
            "environment, and in a file: URI these characters are %3F and %23"
        )
    return str(place)


def _shown(place: str | Path) -> str:
    """For a message. Law 2."""
    return _QUERY.sub("?***", _USER.sub(r"\1***@", str(place), count=1)) if _scheme_of(place) else str(place)


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigError(f'storage_options: names and values are texts ("true", "30s"); that of {name!r} is not')
    return dict(options)
