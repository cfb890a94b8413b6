"""``python -m instride.testing.explore [--depth N] [--seconds S] [--scene NAME] [--jobs J]``: see `_explore`."""

from __future__ import annotations

import sys

from instride.testing._explore.command import main
from instride_command.ending import status_of

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(status_of(main))
