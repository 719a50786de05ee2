"""How the serving process keeps its memory: what large answers took is given back at once."""

from __future__ import annotations

import ctypes
import sys

M_ARENA_MAX = -8
M_MMAP_THRESHOLD = -3
ARENAS = 2
LARGE_BYTES = 128 << 10


def give_back_large_blocks() -> None:
    """Tell glibc to map large blocks by themselves, and to keep few arenas for its threads.

    Its defaults raise that threshold to 32 MiB and give each thread an arena of its own: after a
    few long answers a process of many threads holds several times what it uses. Elsewhere this
    does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
