"""`make jepsen MINUTES=10 SEED=1 FAULTS=kill,partition SYSTEM=headrace`: a run with its verdict.

Exits with 1 if the checker finds an anomaly, and with 2 if a run is not possible here.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.jepsen.run.faults import Faults
from tests.jepsen.run.machines import KINDS, FaketimeUnavailable
from tests.jepsen.run.network import NetworkUnavailable
from tests.jepsen.run.runner import RunConfig, run
from tests.support.apache_kafka.jvm import KafkaUnavailable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", default=",".join(Faults.names()), help="names, separated by commas")
    parser.add_argument("--system", choices=KINDS, default="headrace")
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # also where a shell ignores it, so that namespaces are removed
        signal.signal(number, lambda *_: sys.exit("interrupted"))
    faults = tuple(name for name in options.faults.split(",") if name)
    if unknown := set(faults) - set(Faults.names()):
        parser.error(f"unknown faults {sorted(unknown)}; there are {', '.join(Faults.names())}")
    seed = random.randrange(2**31) if options.seed is None else options.seed
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{options.system}-{seed}"
    directory = options.directory or Path("build") / "jepsen" / name
    config = RunConfig(options.system, options.minutes * 60, seed, faults, options.brokers, options.workers)
    print(f"seed {seed}, results in {directory}", flush=True)
    try:
        report = run(config, directory.absolute())
    except (NetworkUnavailable, FaketimeUnavailable, KafkaUnavailable) as error:
        print(f"not possible here: {error}")
        shutil.rmtree(directory, ignore_errors=True)
        return 2
    print(report.describe())
    return not report.verdict.is_valid


if __name__ == "__main__":
    sys.exit(main())
