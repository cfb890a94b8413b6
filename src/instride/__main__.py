"""`python -m instride` is the command `instride`, but for the first half second (`instride_command`)."""

import sys

from instride_command import main

if __name__ == "__main__":
    sys.exit(main())
