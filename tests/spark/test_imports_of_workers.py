"""What Spark's Python processes import before they read a record: each query starts some, and each imports all anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {
    "pandas",
    "pyarrow.dataset",
    "pyarrow.compute",
    "deltalake",
    "pyiceberg",
    "obstore",
    "confluent_kafka",
    "psycopg",
}


@pytest.mark.parametrize("module", ["instride.spark", "instride.spark._data_source", "pyspark_instride"])
def test_what_is_slow_to_import_is_imported_where_it_is_needed(module: str) -> None:
    code = f"import sys, {module}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert SLOW & set(done.stdout.split()) == set()
