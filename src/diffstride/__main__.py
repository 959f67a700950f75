"""``python -m diffstride`` is the command ``diffstride``."""

import sys

from diffstride.cli import main

sys.exit(main())
