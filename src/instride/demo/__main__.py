"""`python -m instride.demo`."""

import sys

from instride.demo.run import main

sys.exit(main())
