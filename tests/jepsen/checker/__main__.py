"""`python -m tests.jepsen.checker history.jsonl`: prints the verdict, and exits with 1 if there is an anomaly."""

import sys
from pathlib import Path

from tests.jepsen.checker import check, read_history

if __name__ == "__main__":
    verdict = check(read_history(Path(sys.argv[1])))
    print(verdict.describe())
    sys.exit(not verdict.is_valid)
