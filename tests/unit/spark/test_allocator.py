"""The limit runs in its own process: it holds for the rest of a process's life."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from headrace.spark.allocator import fix_large_block_limit

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
if {fix}:
    assert fix_large_block_limit()
large = bytes(24 * 1024 * 1024)
del large
before = libc.mallinfo2().hblkhd
block = bytes(16 * 1024 * 1024)
print(libc.mallinfo2().hblkhd - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer")
@pytest.mark.parametrize("fix", [True, False])
def test_large_blocks_stay_outside_the_heap(fix: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(fix=fix)]
    outside = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert (outside >= 16 * 1024 * 1024) == fix
