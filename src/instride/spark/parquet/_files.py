"""The few steps on a POSIX file system that everything durable here is made of.

Laws
1. A file appears under its name complete and on the disk, or not at all: it is written under a hidden
   temporary name, synced, and then linked or renamed.
2. `create_if_absent` never replaces a file: ``link`` fails where the name is taken; the kernel decides races.
3. A change of a folder is durable only when the folder is synced; so it is, before success is reported.
4. Whoever finds a name taken syncs the folder too: what somebody saw there is then durable, even if its
   creator died before its own sync. Of a folder that is there each process does so once: its sync costs as much as that
   of a small file. It does not see that another process has deleted the folder and made it anew.
5. The time of a file that `create_if_absent` made says when its name appeared. It is set just before the link, however
   long the process was stopped until then: only one that is stopped between these two calls makes a file look older.

Only this module makes system calls that change anything, all through its name ``os``, so that the tests can
end the process between any two of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path
from typing import Final

from instride.errors import SinkWriteError

__all__ = [
    "create_if_absent",
    "is_temporary",
    "make_durable",
    "make_folders",
    "publish",
    "remove",
    "temporary",
    "write_error",
]

_SUFFIX = ".tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_NOT_SYNCED: Final = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS}
"""What a system says that never syncs this folder for us: see `_sync_place`."""
_durable: Final[dict[Path, bool]] = {}
"""Whether this process has synced the folder above this one. False: it made this one, and has not yet."""


def temporary(target: Path) -> Path:
    """A hidden name beside the target that nobody else uses."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}{_SUFFIX}")


def is_temporary(name: str) -> bool:
    """Whether a file's name was made by `temporary`."""
    return name.startswith(".") and name.endswith(_SUFFIX)


def create_if_absent(target: Path, content: bytes, below: Path) -> bool:
    """Create a file with its content in one atomic step; False where one of that name exists.

    below: see `make_folders`. Raises SinkWriteError where the file system refuses; then no half file is there.
    """
    temp = temporary(target)
    try:
        make_folders(target.parent, below)
        try:
            _write_synced(temp, content)
            _touch(temp)
            created = _link(temp, target)
        finally:
            remove(temp)
        # Law 4: also where the name was taken.
        _sync(target.parent)
    except OSError as error:
        raise write_error(target, error) from error
    return created


def make_durable(target: Path, below: Path) -> None:
    """What somebody saw under this name stays there: law 4. Its creator may have died before it synced the folders that
    it made, too, so those below this one are, and this one, where the system allows. Raises SinkWriteError.
    """
    try:
        for folder in target.parents:
            if folder == below:
                break
            _sync(folder)
        _sync_place(below)
    except OSError as error:
        raise write_error(target, error) from error


def publish(temp: Path, target: Path) -> None:
    """Give a finished temporary file its name, durably. The name must be one that nobody else uses."""
    # First: or a crash may leave the name with no content.
    _sync(temp)
    os.replace(temp, target)  # noqa: PTH105
    _sync(target.parent)


def make_folders(folder: Path, below: Path) -> None:
    """Make a folder and those above it, each durable in the one above it. So are those below this one that are there:
    who made them may have failed, or died, before the sync (law 4). Of those above, only what this process made is.
    """
    is_there = folder.is_dir()
    if is_there and _durable.get(folder, below not in folder.parents):
        return
    make_folders(folder.parent, below)
    if not is_there:
        _durable[folder] = False
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102 - see the law on the name ``os``
    sync = _sync_place if is_there and below not in folder.parent.parents else _sync
    sync(folder.parent)
    _durable[folder] = True


def remove(path: Path) -> bool:
    """Delete a file, if it is there and the file system allows. A leftover is invisible, so this raises
    nothing.
    """
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return False
    return True


def write_error(target: Path, error: OSError) -> SinkWriteError:
    """The error to raise for a system's error at writing this file."""
    if error.errno in _FULL:
        reason = "there is no room on the disk (or the quota is used up); free some and try again"
    elif error.errno in _NO_LINKS:
        reason = "the file system does not do what was asked (hard links are needed, or a sink in an object store)"
    else:
        reason = "the file system refused"
    return SinkWriteError(f"cannot write {target}: {reason}: {error}")


def _write_synced(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        left = memoryview(content)
        # The system may take a part only: where the disk fills up, say.
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _touch(temp: Path) -> None:
    """Law 5, by the file system's own clock. Where that has no such call, the file's time is that of its content."""
    with contextlib.suppress(OSError):
        os.utime(temp)


def _link(temp: Path, target: Path) -> bool:
    try:
        os.link(temp, target)
    except FileExistsError:
        return False
    except FileNotFoundError:
        # A vacuum took the temporary file, which it does only where the name is taken, or was, and has expired.
        if target.parent.exists():
            return False
        raise
    return True


def _sync_place(folder: Path) -> None:
    """Sync what is above a sink that is there, where the system allows: it may be another user's, who lets us enter it
    but not list it, or of a kind that syncs no folders (one where others are mounted).
    """
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
