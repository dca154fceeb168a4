"""Trainers of a few lines."""

from __future__ import annotations

#: Prints a numbered line every 50 ms until the file exists that its argument names.
COUNT_UNTIL = """
import itertools, os, sys, time
for number in itertools.count():
    print("line", number, flush=True)
    time.sleep(0.05)
    if os.path.exists(sys.argv[1]):
        print("the last one was", number, flush=True)
        break
"""
