"""A wall clock that a test sets, for processes and all that they start. Monotonic clocks go on as they are."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

#: A library to preload. It adds the seconds in a file, which others may change, to every reading of the wall clock.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

static int64_t seconds(void) {
    if (offset == NULL) {
        int fd = open(getenv("WALL_CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
        void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (mapped == MAP_FAILED)
            abort();
        offset = mapped;
    }
    return *offset;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += seconds();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;
    int status = clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return status;
}

time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now != NULL)
        *now = read.tv_sec;
    return read.tv_sec;
}
"""


class WallClock:
    """The wall clock of processes with `environment`, and of all that they start."""

    def __init__(self, folder: Path) -> None:
        """Build the library in a folder. Needs a C compiler."""
        self._file, library, source = folder / "wall_clock", folder / "wall_clock.so", folder / "wall_clock.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._file)}
        self._file.write_bytes(struct.pack("q", 0))

    def jump(self, seconds: int) -> None:
        """Show this many seconds later, or earlier if negative, than the machine's clock does."""
        with open(self._file, "r+b", buffering=0) as file:
            file.write(struct.pack("q", seconds))
