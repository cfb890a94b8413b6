"""``python tests/simulation/scenario_plays.py NAME...``: write down what is played now. Read the difference!"""

from __future__ import annotations

import sys
from pathlib import Path

from scenario_script import play, read, write

FOLDER = Path(__file__).parent / "scenarios"

if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(FOLDER / f"{name}.txt")
        sys.stdout.write("".join(f"{each}\n" for each in play(read(FOLDER / f"{name}.txt"))[1]))
