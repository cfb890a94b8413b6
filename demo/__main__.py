"""`python -m demo`, in a clone."""

import os
import sys
from pathlib import Path

from demo.run import main

# The members and Spark's workers are processes of their own. They must find this folder, which is not installed.
_CLONE = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_CLONE, os.environ.get("PYTHONPATH"))))
sys.exit(main())
