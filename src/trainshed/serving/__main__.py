"""`python -m trainshed_serving`, if this folder is on `sys.path`."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main(sys.argv[1:]))
