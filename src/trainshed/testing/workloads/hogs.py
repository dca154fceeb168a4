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

#: Each has one MB. It goes on until it is ended, since the kernel refuses it nothing.
MANY_FILES = """
import itertools, os, time
for number in itertools.count():
    os.makedirs("%d" % (number % 7), exist_ok=True)
    with open("%d/%d" % (number % 7, number), "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.002)
"""

#: Their names are gone, their bytes are not.
REMOVED_FILES = """
import os, time
held = []
while True:
    held.append(open("filler", "wb"))
    os.unlink("filler")
    held[-1].write(bytes(4 << 20))
    time.sleep(0.02 if len(held) < 60 else 600)
"""

HOME_AND_TEMPORARY_FILES = """
import itertools, os, tempfile, time
for number in itertools.count():
    folder = os.path.expanduser("~") if number % 2 else tempfile.gettempdir()
    with open(os.path.join(folder, str(number)), "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.002)
"""

SHARED_MEMORY = """
import itertools
for number in itertools.count():
    with open("/dev/shm/%d" % number, "wb") as file:
        file.write(bytes(1 << 20))
"""

LOG = """
import sys
line = "y" * 1000 + "\\n"
for _ in range(20_000):
    sys.stdout.write(line)
raise SystemExit("the flood is over")
"""
