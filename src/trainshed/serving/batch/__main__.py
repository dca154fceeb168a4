"""`python -m trainshed_serving.batch PLAN`: runs a batch prediction."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main(sys.argv[1:]))
