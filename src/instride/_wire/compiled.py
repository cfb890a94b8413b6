"""Guards the modules that are meant to be compiled: slow by accident is an error, slow on purpose a warning."""

from __future__ import annotations

import os
import warnings

__all__ = ["PURE_VARIABLE", "require_compiled"]

PURE_VARIABLE = "INSTRIDE_PURE"
"""The environment variable that, set to 1, allows uncompiled modules. Compiled ones are used where they exist."""


def require_compiled(module: str, *, compiled: bool) -> None:
    """Called by `module` when it is imported. Raises ImportError if it is not compiled and need be."""
    if compiled:
        return
    if os.environ.get(PURE_VARIABLE) != "1":
        raise ImportError(
            f"{module} is not compiled here. Install instride from a wheel (pip install instride) or, in a"
            f" checkout, run: python setup.py build_ext --inplace. {PURE_VARIABLE}=1 in the environment allows"
            " the slow form, for debugging (it needs the package cython)."
        )
    # Level 3 is whoever imports the module: its own line is no news.
    warnings.warn(f"{module} runs uncompiled ({PURE_VARIABLE}=1): slow", RuntimeWarning, stacklevel=3)
