"""Run as a script, in a process of its own: fetch the jars of Maven coordinates with jgo.

A process of its own, since jgo takes no time limit, logs and warns as it likes, and may here be killed at any point
without harm: all that it writes is below the folder that it is given.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(endpoint: str, folder: Path) -> None:
    os.environ["M2_REPO"] = str(folder / "m2")  # before jgo is imported: it reads this once
    import jgo  # noqa: PLC0415 - see above

    jgo.build(endpoint, cache_dir=folder / "jgo")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
