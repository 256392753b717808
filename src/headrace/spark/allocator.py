"""Keeps the memory of Spark's Python workers flat. Runs in the daemon, before it forks the workers.

glibc returns large blocks to the system when they are freed, but each time it raises its limit for "large", up to
32 MB. From then on such blocks come from the heap, where free space before a used block stays with the process. The
states of source partitions are hash tables and snapshots of many MB. In an hour, free space grew to more than half of
their size (bench/results/state-memory.md). With a fixed limit it does not grow.
"""

import ctypes

__all__ = ["fix_large_block_limit"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK_BYTES = 4 * 1024 * 1024
_FREE_HEAP_BYTES = 8 * 1024 * 1024
"""The heap keeps this much, so that the blocks of a batch are not requested from the system again."""


def fix_large_block_limit() -> bool:
    """Returns False if the C library does not have this setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _FREE_HEAP_BYTES))
