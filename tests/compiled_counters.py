"""Compiles a counter that is written in C, and loads it into this process."""

from __future__ import annotations

import ctypes
import functools
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

__all__ = ["compiled_counter"]


@functools.cache
def compiled_counter(name: str, source: str) -> ctypes.PyDLL:
    """Once in a process. name: the library is called so, with ".so". source: its C text, with functions `begin` and
    `end`. Raises CalledProcessError where there is no C compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder) / f"{name}.c", Path(folder) / f"{name}.so"
        text.write_text(source, encoding="utf-8")
        link = shlex.split(sysconfig.get_config_var("LDSHARED"))
        subprocess.run([*link, "-fPIC", "-O1", "-o", library, text], check=True)
        return ctypes.PyDLL(str(library))
