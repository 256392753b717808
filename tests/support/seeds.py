"""The seed of a random test: `HEADRACE_SEED=123 pytest ...` repeats a run."""

import os
import random


def choose_seed() -> int:
    """Returns `HEADRACE_SEED` or a random seed, and prints it: pytest shows it with a failure."""
    seed = int(os.environ.get("HEADRACE_SEED") or random.randrange(2**32))
    print(f"HEADRACE_SEED={seed}")
    return seed
