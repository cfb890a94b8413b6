"""A sink below a prefix in a bucket of an object store, by the package obstore.

Laws
1. A manifest is created by a conditional PUT (S3 and Azure: ``If-None-Match: *``; Google: generation 0): the store
   decides races. A store that ignores the condition is refused before anything is written to the sink.
2. A PUT without an answer may have been done, may be done later, or never. What is under the key decides: this content,
   and it is ours; another, and it is another's; nothing, and the same PUT is sent again. None is sent again before that
   look, so the client that creates does not retry by itself. Nor does the look: one deadline holds for all of it.
3. "Refused" with nothing under the key decides nothing: the store was busy with another's PUT, or what was there has
   expired. It is as no answer.
4. A data file is written to a local temporary file, and uploaded once it is finished. An object appears whole or not
   at all, and its key is its attempt's own, so uploads need no condition. Parts of an upload that died are no object.
5. Errors name the bucket and the key. No message, log or repr holds a secret of storage_options. obstore's own error,
   which is the cause of ours, has the endpoint as it was given: with a user and password, if there is one.
6. Every request ends with all that is sent again for it, whatever the store does: at the latest `retry_timeout`, a
   pause of 15 s and two requests' `timeout` after it began. A part of an upload and a page of a listing are requests by
   themselves. Left out is what obstore does beside it: it fetches a role's credentials before a request, with retries
   of their own, and it aborts an upload whose completion failed. `remove` says where a further one would take as long.
7. What obstore raises at a call is translated, whatever it is: its own errors, the system's, and Python's where the
   store answers what Python cannot hold (a date in the year 0), or where no key can be what a manifest says. Also its
   panics, which are no Exception: an endpoint or a key of the environment that can be in no request.
8. What an error is, its type, its status or (where there was no answer) the client's own text says. But for the code of
   a bucket that is not there, nothing that a store or a proxy has written decides it.
9. obstore's threads begin with a process's first request, and a fork does not copy them: in its child every request
   would wait for ever. So there each is refused. A process that was forked before any request may make some.
"""

from __future__ import annotations

import io
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from instride.errors import ConfigError, NotASinkError, SinkError, SinkUnavailableError, SinkWriteError
from instride.spark.parquet import _files as files
from instride.spark.parquet._client_options import ClientOptions, parse_client_options
from instride.spark.parquet._storage import NoRemovalError, missing_data
from instride.spark.sink import FileInfo

try:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url
except ImportError as error:
    raise ConfigError(
        'a sink in an object store needs the package obstore: pip install "instride[s3]", in the driver and '
        "in the executors"
    ) from error

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore, S3Store

    Client = S3Store | GCSStore | AzureStore

__all__ = ["ObjectStorage", "object_storage"]

_log = logging.getLogger(__name__)

_URI: Final = re.compile(r"([A-Za-z0-9]+):/+([^/]+)/*(.*)", re.DOTALL)
# In front of Azure's account is a container. Else "@" ends a user and password.
_BUCKET: Final = re.compile(r"[\w.$-]+", re.ASCII)
_CONTAINER: Final = re.compile(r"([\w.$-]+@)?[\w.$-]+", re.ASCII)
# Others are percent-encoded on the way, so that a user would not find the objects again.
_PREFIX: Final = re.compile(r"[A-Za-z0-9._=+@()!', -]+")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
# A date, a length or a path that its Python side cannot make.
_UNREADABLE: Final = (ValueError, OverflowError)


class _UnsentError(Exception):
    """No request was made, and none can be. Its text says why, and what to do."""


# Law 7.
_FAILED: Final = (exceptions.BaseError, OSError, NotImplementedError, _UnsentError, *_UNREADABLE)
_EXISTS: Final = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_DENIED: Final = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_UNABLE: Final = (exceptions.NotSupportedError, NotImplementedError)
# Law 8. In the text of an error: no answer or half of one, and why; a status; or what a store says with status 200.
_SAID: Final = re.compile(r"HTTP error: (.+)|status code: (\d{3})\b|error response: ")
_BUSY: Final = re.compile(r"408|429|5(?!01)\d\d")
# Why no request was made: the URL is none, or is http:// and not allowed.
_NO_REQUEST: Final = "builder error"
# In the client's structures: TLS that fails with each further try, too, and what is wrong with the certificate.
_NO_TLS: Final = re.compile(
    r"\berror: (?:(InvalidCertificate)\(\s*(\w+)|NoCertificatesPresented|PeerIncompatible"
    r"|InvalidMessage\(\s*InvalidContentType)"
)
_USER: Final = re.compile(r"://[^/\s]*@")
# Azure's signature is there.
_QUERY: Final = re.compile(r"(://[^\s?]*)\?\S*")
# Before each further PUT that creates, in seconds.
_PAUSES: Final = [0.1, 0.4, 1.6, 6.4, 15.0]
_DELETION: Final = "DeleteObjects; set the storage option aws_disable_bulk_delete to true"
_PART_BYTES: Final = 16 << 20
_PARTS_AT_ONCE: Final = 4


def object_storage(uri: str, options: Mapping[str, str]) -> ObjectStorage:
    """The storage at a URI; the network is not used. Raises NotASinkError, ConfigError."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise NotASinkError(f"{uri.partition(':')[0]}:// names no bucket: give SCHEME://BUCKET/PREFIX")
    scheme, bucket, rest = found.groups()
    if not (_CONTAINER if scheme.lower().startswith("abfs") else _BUCKET).fullmatch(bucket):
        # It is not shown: it may be a key and a secret.
        raise NotASinkError(
            f"{scheme}://: what follows is no bucket's name, which is of letters, digits and -_. alone. A URI holds no "
            "credentials and no port: give them as storage_options or in the environment"
        )
    root = f"{scheme.lower()}://{bucket}"
    parts = rest.rstrip("/").split("/") if rest.rstrip("/") else []
    for part in parts:
        if part in (".", "..") or not _PREFIX.fullmatch(part):
            # Nor is this: who misplaces credentials may do it here.
            odd = part if part in (".", "..") else _PREFIX.sub("", part)[:1]
            raise NotASinkError(f"{root}: {odd!r} cannot be a part of the prefix; take letters, digits and -_.=")
    parsed = parse_client_options(options)
    return ObjectStorage(
        bucket=root,
        prefix="/".join(parts),
        client=_client(root, parsed, retries=10),
        creator=_client(root, parsed, retries=0),
        patience=parsed.retry_timeout,
    )


def _client(root: str, options: ClientOptions, *, retries: int) -> Client:
    """One with the environment's credentials, and the options before them."""
    make: Any = from_url
    try:
        found = make(root, config=options.store, client_options=options.http, retry_config=options.retry(retries))
        return cast("Client", found)
    except BaseException as error:
        # The package panics at a client's option with the store's prefix (aws_allow_http).
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        reason = _reason(error)
        for value in (*options.store.values(), *options.http.values()):  # law 5: it may quote what it could not parse
            reason = reason.replace(value, "***") if isinstance(value, str) and len(value) > 3 else reason
        raise ConfigError(f"storage_options: no client for {root} can be made: {reason}") from None


class _Process:
    """Law 9. The process that makes requests: the one with the first of them."""

    def __init__(self) -> None:
        self._id = 0

    def check(self) -> None:
        """Before each request. Raises _UnsentError."""
        here = os.getpid()
        if self._id == 0:
            self._id = here
        elif self._id != here:
            raise _UnsentError(
                "this process was forked from one that had used an object store, and the client's threads are not in "
                'it. Start processes by "spawn" or "forkserver" (multiprocessing.set_start_method), or fork before the '
                "first use of a sink"
            )


_process: Final = _Process()


@contextmanager
def _asking() -> Iterator[None]:
    """Every request is made inside. Laws 7 and 9. Raises _UnsentError."""
    _process.check()
    try:
        yield
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise _UnsentError(
            "no request can be made: check the endpoint (http://HOST:PORT or https://...) and the credentials (no "
            f"newline at their ends) in storage_options and the environment: {_reason(error)}"
        ) from error


def _is_panic(error: BaseException) -> bool:
    """One of Rust, whose class cannot be imported: no Exception, so that it would pass whoever deals with errors."""
    return type(error).__name__ == "PanicException"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorage:
    """Implements `Storage`. bucket: its URI. prefix: parts joined by "/". creator: a client that never retries.

    patience: so many seconds after its begin no call sends a request again.
    """

    bucket: str
    prefix: str
    client: Client = field(repr=False)
    creator: Client = field(repr=False)
    patience: float

    @property
    def name(self) -> str:
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    def at(self, key: str) -> str:
        return f"{self.bucket}/{self._path(key)}"

    def inside(self, folder: str) -> ObjectStorage:
        return replace(self, prefix=self._path(folder))

    def check_kind(self) -> None:
        """A prefix is always one; whether the bucket is there, the first call tells."""

    def check_creates(self, key: str, content: bytes) -> None:
        """Law 1. A store that ignores the condition writes this content, which is why it must be a good one."""
        if self.create_if_absent(key, content):
            raise NotASinkError(
                f"{self.bucket} ignores the condition of a PUT (If-None-Match: *): it created {self.at(key)} though it "
                "was there. Two drivers could commit the same range. Take another store, or a local folder"
            )

    def create_if_absent(self, key: str, content: bytes) -> bool:
        """Laws 1, 2, 3 and 6."""
        unsure: Exception | None = None
        until = time.monotonic() + self.patience
        for pause in (0.0, *_PAUSES):
            if unsure is not None:
                if time.monotonic() + pause > until:
                    break
                _log.info("%s may have been created, and is looked up: %s", self.at(key), _reason(unsure))
                time.sleep(pause)
            try:
                with _asking():
                    obstore.put(self.creator, self._path(key), content, mode="create", use_multipart=False)
            except _FAILED as error:
                if isinstance(error, FileNotFoundError):  # there is nothing else that such a PUT may miss
                    raise NotASinkError(
                        f"cannot write {self.at(key)}: the bucket {self.bucket} is not there"
                    ) from error
                self._raise_certain(key, error, "a PUT that creates only what is absent (If-None-Match: *)")
                is_ours = self._decided(key, content, error, is_first=unsure is None)
                if is_ours is not None:
                    return is_ours
                unsure = error
            else:
                return True
        assert unsure is not None
        raise SinkWriteError(
            f"cannot create {self.at(key)}: the object store does not answer for sure: {_reason(unsure)}; "
            f"look at the store, and {_again(unsure)}"
        ) from unsure

    def make_durable(self, key: str) -> None:
        """What a store shows is durable."""

    def read(self, key: str) -> bytes | None:
        return self._read(self.client, key)

    def size(self, key: str) -> int | None:
        found = self._head(key)
        return None if found is None else found["size"]

    def appeared(self, key: str) -> float | None:
        found = self._head(key)
        return None if found is None else found["last_modified"].timestamp()

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        try:
            with _asking():
                found = obstore.list_with_delimiter(self.client, path or None)
        except _FAILED as error:
            self._check_bucket(error)
            raise self._error(f"cannot list {self.at(folder)}", error, "listings (ListObjectsV2)") from error
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        # The object that consoles put for an empty folder is the prefix itself.
        return [each.rstrip("/").rpartition("/")[2] for each in paths if each.strip("/") != path]

    def unfinished(self, folder: str) -> list[str]:
        """None: parts of an upload are no objects. The bucket's rule for incomplete uploads removes them."""
        return []

    def remove(self, key: str) -> bool:
        try:
            with _asking():
                obstore.delete(self.client, self._path(key))
        except _FAILED as error:
            _log.warning("%s", self._error(f"cannot remove {self.at(key)}", error, _DELETION))
            if _is_unable(error) or _passes(error) or isinstance(error, _UnsentError):
                raise NoRemovalError from error
            return False
        return True

    def scratch(self, key: str) -> Path:
        try:
            handle, path = tempfile.mkstemp(prefix="instride-", suffix=".parquet")
        except OSError as error:
            raise files.write_error(Path(tempfile.gettempdir()), error) from error
        os.close(handle)
        return Path(path)

    def publish(self, scratch: Path, key: str) -> int:
        """Law 4."""
        path = self._path(key)
        try:
            size = scratch.stat().st_size
        except OSError as error:
            raise files.write_error(scratch, error) from error
        try:
            with _asking():
                obstore.put(self.client, path, scratch, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        except _FAILED as error:
            # Not found may be the file here, or an upload that is completed once more, as its first answer was lost.
            if isinstance(error, FileNotFoundError):
                self._check_bucket(error)
            self._raise_certain(key, error, "uploads (PUT, and large ones in parts)")
            raise SinkWriteError(
                f"cannot write {self.at(key)} from {scratch}: {_reason(error)}; {_again(error)}"
            ) from error
        with suppress(OSError):
            scratch.unlink()
        return size

    def opened(self, file: FileInfo) -> BinaryIO:
        return cast("BinaryIO", _ObjectFile(self, file))

    def _path(self, key: str) -> str:
        return f"{self.prefix}/{key}".strip("/")

    def _decided(self, key: str, content: bytes, error: Exception, *, is_first: bool) -> bool | None:
        """Whether we created it, after a PUT that failed; None where nobody knows yet."""
        try:
            there = self._read(self.creator, key)
        except SinkError:
            return None
        if there is None:
            return None
        # The first PUT was refused for sure, so it is another's, even with the same content.
        return there == content and not (is_first and isinstance(error, _EXISTS))

    def _head(self, key: str) -> ObjectMeta | None:
        try:
            with _asking():
                return obstore.head(self.client, self._path(key))
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        except _FAILED as error:
            raise self._error(f"cannot read {self.at(key)}", error, "HEAD") from error

    def _read(self, client: Client, key: str) -> bytes | None:
        try:
            with _asking():
                return bytes(obstore.get(client, self._path(key)).bytes())
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        except _FAILED as error:
            raise self._error(f"cannot read {self.at(key)}", error, "GET") from error

    def _raise_certain(self, key: str, error: Exception, asked: str) -> None:
        """Errors that say that nothing was written, and that nothing changes by trying again."""
        if _is_unable(error) or _is_misconfigured(error) or isinstance(error, _UNREADABLE):
            raise self._error(f"cannot write {self.at(key)}", error, asked) from error
        if _is_denied(error):
            raise SinkWriteError(f"cannot write {self.at(key)}: {_advice(error)}: {_reason(error)}") from error

    def _check_bucket(self, error: Exception) -> None:
        if any(sign in str(error) for sign in _NO_BUCKET):
            raise NotASinkError(f"{self.name} is no sink: the bucket {self.bucket} is not there") from error

    def _error(self, failed: str, error: Exception, asked: str) -> SinkError:
        """What it is to who called. failed: what could not be done. asked: of the store."""
        reason = _reason(error)
        if isinstance(error, _UnsentError):
            return SinkError(f"{failed}: {error}")
        if _is_unable(error):
            return NotASinkError(f"{failed}: the object store does not implement {asked}: {reason}")
        if _passes(error):
            return SinkUnavailableError(
                f"{failed}: the object store did not answer in time, or is busy: {reason}; {_again(error)}"
            )
        return SinkError(f"{failed}: {_advice(error)}: {reason}")


class _ObjectFile(io.RawIOBase):
    """A data file that is read by ranges of bytes."""

    def __init__(self, storage: ObjectStorage, file: FileInfo) -> None:
        super().__init__()
        self._storage = storage
        self._file = file
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._file.bytes}[whence]
        self._place = max(0, base + offset)
        return self._place

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._file.bytes - self._place)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted == 0:
            return b""
        found = self._range(self._place, self._place + wanted)
        self._place += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()

    def _range(self, start: int, end: int) -> bytes:
        storage, key = self._storage, self._file.path
        try:
            with _asking():
                return bytes(obstore.get_range(storage.client, storage._path(key), start=start, end=end))
        except FileNotFoundError as error:
            storage._check_bucket(error)
            raise missing_data(storage.at(key)) from error
        except _FAILED as error:
            raise storage._error(f"cannot read {storage.at(key)}", error, "GET of a range of bytes") from error


def _advice(error: Exception) -> str:
    if _is_denied(error):
        return (
            "permission denied; check the credentials (storage_options, or the environment), and that they may get, "
            "put, list and delete objects"
        )
    if _said(error) == _NO_REQUEST:
        return "no request can be made: an endpoint with http:// needs the storage option allow_http"
    if _is_misconfigured(error):
        return _advice_of_tls(error)
    if isinstance(error, _UNREADABLE):
        return "the key, or what the object store answered, cannot be read"
    return "the object store failed"


def _advice_of_tls(error: Exception) -> str:
    found = _NO_TLS.search(str(error))
    if found is None or found[1] is None:
        return "the endpoint does not speak TLS, or not as this client does"
    return (
        f"the certificate of the endpoint is refused ({found[2]}): give that of its authority, as text in PEM, as the "
        "storage option root_certificate, or mend the endpoint's"
    )


def _again(error: Exception) -> str:
    return "try again, or raise storage_options' timeout and retry_timeout" if _passes(error) else "try again"


def _said(error: Exception) -> str:
    """Law 8: a status, or why there is no answer; "" for anything else."""
    found = _SAID.search(str(error))
    return "" if found is None else found[1] or found[2] or ""


def _passes(error: Exception) -> bool:
    """The store gave no answer, half of one, or one that says that it is busy."""
    said = _said(error)
    if said.isdecimal():
        return _BUSY.fullmatch(said) is not None
    return said != "" and not _is_misconfigured(error)


def _is_misconfigured(error: Exception) -> bool:
    """No answer, and none ever with these options."""
    if isinstance(error, _UnsentError):
        return True
    said = _said(error)
    return said == _NO_REQUEST or (said != "" and not said.isdecimal() and _NO_TLS.search(str(error)) is not None)


def _is_denied(error: Exception) -> bool:
    # A listing's error says it in its text only.
    return isinstance(error, _DENIED) or _said(error) in ("401", "403")


def _is_unable(error: Exception) -> bool:
    return isinstance(error, _UNABLE) or _said(error) == "501"


def _reason(error: BaseException) -> str:
    """The first line: the others are the client's structures. Law 5."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _QUERY.sub(r"\1?***", _USER.sub("://***@", lines[0]))[:400]
