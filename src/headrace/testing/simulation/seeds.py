"""A whole run by its seed: cluster, workload, faults, checks.

    run_seed(17)        # raises InvariantViolation, with the trace of the run

The seed decides the number of brokers, the protocol between them (and with it how leaders change the ISR), whether
records are synced before they are acknowledged, whether consumers read from followers, which clients run, which kinds
of faults happen, and everything else. Power loss happens only where records are synced: without `log.flush.*`, an
acknowledged record is in the memory of the in-sync replicas, as in Kafka.
"""

import asyncio
from dataclasses import dataclass, field

from headrace.common.ids import make_random
from headrace.testing.simulation.cluster import SimulatedCluster, rack_of, run_simulation
from headrace.testing.simulation.faults import Faults
from headrace.testing.simulation.history import History, InvariantViolation
from headrace.testing.simulation.invariants import Invariants
from headrace.testing.simulation.workload import Workload

FAULT_SECONDS = 25.0
_SETTLE_SECONDS = 120.0
_CHECK_SECONDS = 0.1

PROPERTIES: dict[str, object] = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "replica.lag.time.max.ms": 3000,
    "controller.socket.timeout.ms": 3000,
    "replica.socket.timeout.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "controlled.shutdown.retry.backoff.ms": 500,
}
PROTOCOLS = ("3.9", "3.9", "2.6")
"""Up to 2.6 leaders write ISR changes to the store by compare-and-set, later they ask the controller."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass
class Outcome:
    """What happened in a run."""

    seed: int
    acknowledged: int = 0
    read: int = 0
    transactions: int = 0
    truncations: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    virtual_seconds: float = 0.0
    callbacks: int = 0
    trace: list[str] = field(default_factory=list)


def run_seed(
    seed: int, replication_factor: int = 3, brokers: int | None = None, *, moves_log_dirs: bool = False
) -> Outcome:
    """Runs one seed. Raises InvariantViolation, or the unexpected error of a broker or client.

    With `moves_log_dirs`, brokers have two log directories, and replicas move between them, throttled, all the time.
    """
    outcome = Outcome(seed)
    random = make_random(seed)
    brokers = random.choice((3, 3, 3, 4, 5)) if brokers is None else brokers
    syncs = random.random() < 0.4
    properties = dict(PROPERTIES)
    if syncs:
        properties["log.flush.interval.messages"] = 1
    properties["inter.broker.protocol.version"] = random.choice(PROTOCOLS)
    client_rack = None
    if random.random() < 0.3:
        properties["replica.selector.class"] = RACK_AWARE
        client_rack = rack_of(random.randrange(brokers))
    if replication_factor < 3:
        properties.update(
            {
                "min.insync.replicas": 1,
                "offsets.topic.replication.factor": 1,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
            }
        )

    if moves_log_dirs:
        properties["replica.alter.log.dirs.io.max.bytes.per.second"] = random.choice((500, 5_000, 2**63 - 1))

    async def scenario(cluster: SimulatedCluster) -> None:
        history = History()
        invariants = Invariants(cluster, history)
        faults = Faults(cluster, make_random(random.getrandbits(64)), power_loss=syncs, moves_log_dirs=moves_log_dirs)
        workload = Workload(cluster, make_random(random.getrandbits(64)), history, replication_factor)
        workload.client_rack = client_rack
        supervisors = [asyncio.create_task(faults.supervise(broker)) for broker in cluster.brokers.values()]
        checking = asyncio.create_task(_check(cluster, invariants, workload, supervisors))
        work = asyncio.create_task(_run(cluster, faults, workload, invariants))
        await asyncio.wait((work, checking), return_when=asyncio.FIRST_COMPLETED)
        if checking.done():
            checking.result()
        await work
        outcome.acknowledged, outcome.read = history.acknowledged_count, history.read_count
        outcome.transactions = len(history.transactions)
        outcome.truncations = invariants.truncations
        outcome.faults, outcome.failures = faults.injected, history.failures

    async def _run(cluster: SimulatedCluster, faults: Faults, workload: Workload, invariants: Invariants) -> None:
        if moves_log_dirs:
            cluster.log_dirs = ("data", "data-2")
        await cluster.start()
        await workload.create_topics()
        workload.start(workload.producer, workload.producer, workload.reader)
        clients = (
            workload.group_consumer,
            workload.transactional_producer,
            workload.committed_reader,
            workload.copier,
            workload.topic_changer,
        )
        workload.start(*random.sample(clients, random.randint(0, len(clients))))
        kinds = sorted(faults.kinds)
        chosen = random.sample(kinds, random.randint(1, len(kinds)))
        if moves_log_dirs:
            chosen += ["move_replicas"] * len(chosen)
        await faults.run(FAULT_SECONDS, chosen)
        await faults.heal()
        cluster.note("all faults are over")
        await asyncio.sleep(2)
        await workload.stop()
        await _settle(cluster, invariants)
        await workload.check_end()

    cluster = run_simulation(seed, scenario, brokers=brokers, properties=properties)
    outcome.virtual_seconds, outcome.callbacks = cluster.loop.time(), cluster.loop.callbacks
    outcome.trace = cluster.trace
    return outcome


async def _check(
    cluster: SimulatedCluster, invariants: Invariants, workload: Workload, supervisors: "list[asyncio.Task[None]]"
) -> None:
    """Checks all the time, until something is wrong."""
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        invariants.check()
        workload.check()
        if cluster.loop.errors:
            raise InvariantViolation(f"An exception that nothing handled: {cluster.loop.errors[0]}")
        for supervisor in supervisors:
            if supervisor.done():
                supervisor.result()


async def _settle(cluster: SimulatedCluster, invariants: Invariants) -> None:
    """Waits until the cluster is healthy."""
    deadline = cluster.loop.time() + _SETTLE_SECONDS
    while (reason := invariants.unsettled()) is not None:
        if cluster.loop.time() > deadline:
            raise InvariantViolation(f"{_SETTLE_SECONDS:.0f} seconds after the last fault, {reason}")
        await asyncio.sleep(0.5)
