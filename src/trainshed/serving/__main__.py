"""`python -m trainshed_serving`, for whoever has this folder on the path already."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main(sys.argv[1:]))
