"""Run as a script, in a process of its own: fetch the jars of Maven coordinates with jgo, and print their paths.

A process of its own, since jgo has no time limits that a caller can set, logs and warns as it likes, and may be killed
at any point without harm: all it writes is below the folders that it is given.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(endpoint: str, folder: str) -> None:
    import jgo  # noqa: PLC0415 - here, so that a missing jgo is this script's failure only

    environment = jgo.build(endpoint, cache_dir=Path(folder))
    for jar in sorted(environment.path.rglob("*.jar")):
        sys.stdout.write(f"{jar}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
