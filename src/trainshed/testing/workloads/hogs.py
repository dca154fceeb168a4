"""Trainers that take what they can get: memory, processes, open files, the disk, the log. Standard library alone."""

from __future__ import annotations

MEMORY = """
held = []
while True:
    held.append(b"x" * (1 << 20))
"""

#: The memory is that of a child, which the kernel kills first.
MEMORY_OF_A_CHILD = """
import subprocess, sys
code = "held = []\\nwhile True:\\n    held.append(b'x' * (1 << 20))"
raise SystemExit(subprocess.run([sys.executable, "-c", code]).returncode != 0)
"""

FORK_BOMB = """
import os, time
while True:
    if os.fork() == 0:
        time.sleep(600)
"""

THREADS = """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""

DESCRIPTORS = """
held = []
while True:
    held.append(open("/dev/null"))
"""

DISK = """
with open("filler", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
"""

LOG = """
import sys
line = "y" * 1000 + "\\n"
for _ in range(20_000):
    sys.stdout.write(line)
raise SystemExit("the flood is over")
"""
