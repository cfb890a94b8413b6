"""Compiles the modules whose speed needs C. Everything else about the project is in pyproject.toml.

A failed compilation fails the build (no silent fall-back to the slow form).
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

COMPILED = (
    "instride._net.compiled_pump",
    "instride._wire.arrow_array",
    "instride._wire.batch_headers",
    "instride._wire.record_index",
    "instride._wire.decoder",
)

setup(
    ext_modules=cythonize(
        [Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O3"]) for name in COMPILED],
        build_dir="build",
        language_level="3",
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
