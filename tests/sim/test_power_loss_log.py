"""Thousands of power losses under one log: all flushed records survive, and no other records appear.

Each seed is one run: work, a power loss at any time (also during a step, a close or the
recovery itself), recovery, check, work. HEADRACE_POWER_SEEDS sets the number of runs. To repeat a failed one:
HEADRACE_POWER_FIRST_SEED=<seed> HEADRACE_POWER_SEEDS=1.
"""

import contextlib
import os
import shutil
from pathlib import Path
from random import Random

import pytest
from tests.support.storage.log_sim import DeferredRunner, LogModel, Workload
from tests.support.storage.log_workload import Mix

from headrace.common.background import InlineRunner
from headrace.common.types import TopicPartition
from headrace.records import Compression
from headrace.storage.config import LogConfig
from headrace.storage.loader import open_log
from headrace.storage.log import Log, LogContext
from headrace.testing.clock import ManualClock
from headrace.testing.disks import Killed, PowerLossFileSystem

SEEDS = int(os.environ.get("HEADRACE_POWER_SEEDS", "100"))
FIRST_SEED = int(os.environ.get("HEADRACE_POWER_FIRST_SEED", "0"))
CRASHES = 6
TP = TopicPartition("events", 0)


class LogLife:
    """A log that is opened repeatedly. Acts as the log manager: keeps its checkpoints."""

    def __init__(self, root: Path, seed: int, policy: str):
        self.random = Random(seed)
        self.files = PowerLossFileSystem(root)
        self.clock = ManualClock()
        self.directory = root / str(TP)
        self.config = LogConfig.from_properties(
            {
                "cleanup.policy": policy,
                "segment.bytes": self.random.choice((1024, 2048, 8192)),
                "index.interval.bytes": self.random.choice((1, 128, 1024)),
                "max.message.bytes": 1000,
                "retention.bytes": self.random.choice((-1, -1, 8192)),
                "retention.ms": self.random.choice((-1, 3000)),
                "flush.messages": self.random.choice((2**62, 2**62, 1, 10)),
                "delete.retention.ms": self.random.choice((0, 500, 10_000)),
                "file.delete.delay.ms": 0,
                "preallocate": self.random.random() < 0.1,
            }
        )
        mix = Mix(codecs=(Compression.NONE, Compression.NONE, Compression.LZ4), largest_value_bytes=60)
        self.workload = Workload(self.random, mix, self.clock)
        self.model = LogModel()
        self.recovery_point = self.log_start = 0
        self.clean = False

    def live(self, crashes: int) -> None:
        for _ in range(crashes):
            with contextlib.suppress(Killed):
                self.interruptedly()
            self.files.crash(self.random)
        self.model.check(self.open())

    def interruptedly(self) -> None:
        if self.random.random() < 0.2:
            self.files.kill_after(self.random.randint(0, 20), torn=self.random.random() < 0.5)
            self.open()
            self.files.heal()
        log = self.open()
        self.model.check(log)
        self.files.kill_after(self.random.choice((10, 100, 1000)) * self.random.randint(1, 10))
        for _ in range(self.random.randint(1, 60)):
            self.workload.step(log, self.model)
            if self.random.random() < 0.1:
                self.checkpoint(log)
            if isinstance(log.context.runner, DeferredRunner) and self.random.random() < 0.3:
                log.context.runner.run_one()
                self.model.note(log)
        if self.random.random() < 0.2:
            log.close()
            self.model.note(log)
            self.checkpoint(log)
            self.clean = True

    def open(self) -> Log:
        clean, self.clean = self.clean, False
        runner = self.random.choice((InlineRunner, DeferredRunner))()
        context = LogContext(files=self.files, clock=self.clock, runner=runner, random=self.random)
        log, _ = open_log(
            self.directory,
            TP,
            self.config,
            context,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
        )
        log.on_recovery_point_lowered = lambda: self.checkpoint(log)
        if log.recovery_point < self.recovery_point:
            self.checkpoint(log)
        return log

    def checkpoint(self, log: Log) -> None:
        self.recovery_point = log.recovery_point
        self.log_start = log.log_start_offset


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_power_cuts(tmp_path: Path, policy: str) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        root = tmp_path / str(seed)
        root.mkdir()
        try:
            LogLife(root, seed, policy).live(CRASHES)
        except Exception as error:
            error.add_note(f"HEADRACE_POWER_FIRST_SEED={seed} HEADRACE_POWER_SEEDS=1, policy {policy}")
            raise
        shutil.rmtree(root)
