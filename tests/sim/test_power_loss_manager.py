"""Power losses under a log manager: partitions in two directories are created, written, compacted and deleted.

Like `test_power_loss_log`, but with the manager's checkpoints, periodic tasks and background work. The same variables
set the number of runs: HEADRACE_POWER_SEEDS, HEADRACE_POWER_FIRST_SEED.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.storage.log_sim import DeferredRunner, LogModel, Workload
from tests.support.storage.log_workload import Mix

from headrace.common.background import InlineRunner
from headrace.common.errors import KafkaStorageError
from headrace.common.ids import Uuid, random_uuid
from headrace.common.types import TopicPartition
from headrace.records import Compression
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock
from headrace.testing.disks import Killed, PowerLossFileSystem

SEEDS = int(os.environ.get("HEADRACE_POWER_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("HEADRACE_POWER_FIRST_SEED", "0"))
CRASHES = 5
TPS = [TopicPartition(topic, number) for topic in ("plain", "compacted") for number in range(3)]
TASKS = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.retention.check.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.cleaner.backoff.ms",
)


class ManagerLife:
    def __init__(self, root: Path, seed: int):
        self.random = Random(seed)
        self.root = root
        self.files = PowerLossFileSystem(root)
        self.clock = ManualClock()
        mix = Mix(codecs=(Compression.NONE, Compression.LZ4), largest_value_bytes=60)
        self.workload = Workload(self.random, mix, self.clock, compacts=False)
        small = {
            "segment.bytes": self.random.choice((1024, 2048)),
            "index.interval.bytes": self.random.choice((1, 128)),
            "max.message.bytes": 1000,
            "delete.retention.ms": self.random.choice((0, 500)),
            "file.delete.delay.ms": self.random.choice((0, 100)),
            "flush.ms": self.random.choice((50, 2**62)),
        }
        dirty = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.1}
        retained = {"retention.bytes": self.random.choice((-1, 8192)), "retention.ms": self.random.choice((-1, 5000))}
        self.configs = {
            "plain": LogConfig.from_properties({**small, **retained}),
            "compacted": LogConfig.from_properties({**small, **dirty}),
        }
        self.models: dict[TopicPartition, LogModel] = {}
        self.ids: dict[TopicPartition, Uuid] = {}
        self.uncertain: set[TopicPartition] = set()
        """Partitions that were being created or deleted during the power loss."""
        self.truncating: set[TopicPartition] = set()
        """Partitions that are being truncated: nothing is appended to them meanwhile."""

    def live(self, crashes: int) -> None:
        for _ in range(crashes):
            manager = self.make_manager()
            self.truncating.clear()
            with suppress(Killed):
                self.interruptedly(manager)
            manager.abandon()
            self.files.crash(self.random)
        manager = self.make_manager()
        manager.start()
        self.check(manager)
        manager.abandon()

    def make_manager(self) -> LogManager:
        every = {task: self.random.choice((50, 500)) for task in TASKS}
        settings = ManagerConfig.from_properties(
            {
                "log.dirs": f"{self.root / 'a'},{self.root / 'b'}",
                "num.recovery.threads.per.data.dir": 1,
                "log.initial.task.delay.ms": 0,
                **every,
            }
        )
        return LogManager(
            settings,
            config_of=self.configs.__getitem__,
            cluster_id="power",
            files=self.files,
            clock=self.clock,
            runner=self.random.choice((InlineRunner, DeferredRunner))(),
            seed=self.random.randrange(2**32),
        )

    def interruptedly(self, manager: LogManager) -> None:
        if self.random.random() < 0.2:
            self.files.kill_after(self.random.randint(0, 60), torn=self.random.random() < 0.5)
        manager.start()
        self.files.heal()
        self.check(manager)
        self.files.kill_after(self.random.choice((20, 200, 2000)) * self.random.randint(1, 10))
        for _ in range(self.random.randint(1, 150)):
            self.step(manager)
        if self.random.random() < 0.2:
            manager.close()
            for tp, model in self.models.items():
                log = manager.get(tp)
                assert log is not None
                # A truncation in progress may have removed some of the batches.
                model.flushed = min(max((batch.next_offset for batch in model.batches), default=0), log.log_end_offset)

    def check(self, manager: LogManager) -> None:
        assert [directory.failure for directory in manager.directories] == [None, None]
        for tp in TPS:
            log = manager.get(tp)
            if log is None:
                # The first flush also syncs the name of the directory. The controller creates a lost log again.
                assert tp not in self.models or tp in self.uncertain or not self.models[tp].flushed, f"{tp} is lost"
                self.models.pop(tp, None)
            else:
                assert tp in self.models or tp in self.uncertain, f"{tp} was deleted and is back"
                assert log.topic_id in (None, self.ids[tp]), f"{tp} has another id"
                self.models.setdefault(tp, LogModel()).check(log)
        self.uncertain.clear()

    def step(self, manager: LogManager) -> None:
        kind = self.random.random()
        if kind < 0.08:
            self.create(manager, self.random.choice(TPS))
        elif kind < 0.10 and self.models:
            self.delete(manager, self.random.choice(list(self.models)))
        elif kind < 0.20:
            self.pass_time(manager)
        elif kind < 0.30 and isinstance(manager.runner, DeferredRunner):
            manager.runner.run_one()
        elif kind < 0.33:
            self.truncate_many(manager)
        elif self.models.keys() - self.truncating:
            tp = self.random.choice([tp for tp in self.models if tp not in self.truncating])
            log = manager.get(tp)
            assert log is not None
            self.workload.step(log, self.models[tp])
        self.note_all(manager)

    def create(self, manager: LogManager, tp: TopicPartition) -> None:
        if tp not in self.models:
            self.uncertain.add(tp)
            self.ids[tp] = random_uuid(self.random)
        manager.create(tp, self.ids[tp])
        self.models.setdefault(tp, LogModel())
        self.uncertain.discard(tp)

    def delete(self, manager: LogManager, tp: TopicPartition) -> None:
        self.uncertain.add(tp)
        manager.delete(tp)
        self.uncertain.discard(tp)
        del self.models[tp]

    def truncate_many(self, manager: LogManager) -> None:
        """Truncates several logs at once, as a follower does after a failover."""
        tps = [tp for tp in self.models if tp.topic == "plain" and tp not in self.truncating]
        offsets: dict[TopicPartition, int] = {}
        for tp in tps:
            log, model = manager.get(tp), self.models[tp]
            assert log is not None
            offset = self.random.randint(max(log.log_start_offset, log.log_end_offset - 40), log.log_end_offset)
            removed = [batch.base_offset for batch in model.batches if batch.last_offset >= offset]
            model.flushed = min([model.flushed, offset, *removed])
            model.truncating_to = offset
            offsets[tp] = offset
        models = {tp: self.models[tp] for tp in tps}

        def done(results: Mapping[TopicPartition, KafkaStorageError | None]) -> None:
            for tp, model in models.items():
                model.truncating_to = None
                if self.models.get(tp) is model:
                    assert results[tp] is None
                    model.batches = [batch for batch in model.batches if batch.last_offset < offsets[tp]]
            self.truncating.difference_update(tps)

        self.truncating.update(tps)
        self.workload.leader_epoch += 1
        manager.truncate_many(offsets, done)

    def pass_time(self, manager: LogManager) -> None:
        self.clock.advance(self.random.choice((1, 60, 600)))
        for log in manager:
            log.update_high_watermark(log.log_end_offset)
            self.models[log.tp].highest_start = log.log_end_offset  # retention may come
        manager.tick()

    def note_all(self, manager: LogManager) -> None:
        for tp, model in self.models.items():
            log = manager.get(tp)
            assert log is not None, f"{tp} is gone: {[directory.failure for directory in manager.directories]}"
            model.note(log)


def test_power_cuts(tmp_path: Path) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        root = tmp_path / str(seed)
        root.mkdir()
        try:
            ManagerLife(root, seed).live(CRASHES)
        except Exception as error:
            error.add_note(f"HEADRACE_POWER_FIRST_SEED={seed} HEADRACE_POWER_SEEDS=1")
            raise
        shutil.rmtree(root)
