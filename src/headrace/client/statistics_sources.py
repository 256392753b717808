"""The consumer's and the producer's part of the statistics: topics, partitions, group, exactly-once.

Owner: the loop.
"""

from typing import TYPE_CHECKING, Any

from headrace.client.consumer.partition_state import FetchState
from headrace.client.statistics import Source, partition_row, topic_row

if TYPE_CHECKING:
    from headrace.client.consumer.core import ConsumerCore
    from headrace.client.producer.core import ProducerCore

__all__ = ["consumer_source", "producer_source"]

_FETCH_STATES = {
    FetchState.NONE: "none",
    FetchState.OFFSET_QUERY: "offset-query",
    FetchState.OFFSET_WAIT: "offset-wait",
    FetchState.VALIDATE_WAIT: "validate-epoch-wait",
    FetchState.ACTIVE: "active",
    FetchState.STOPPING: "stopping",
    FetchState.STOPPED: "stopped",
}
_UNKNOWN = -1001


def consumer_source(core: "ConsumerCore") -> Source:
    """Returns the function that fills in a consumer's fields."""
    traffic = core.collector.traffic

    def fill(statistics: dict[str, Any]) -> None:
        statistics["rxmsgs"], statistics["rxmsg_bytes"] = traffic.records, traffic.bytes
        view = core.client.metadata.view
        read_committed = core.config.isolation_level == "read_committed"
        committed = core.coordinator.commits.last_committed if core.coordinator is not None else {}
        with core.subscription.lock:
            for state in core.subscription.states():
                records, size = traffic.partitions.get(state.tp, (0, 0))
                end = state.end_offset(read_committed)
                waiting = core.buffer.buffered_bytes(state.tp)
                done = committed.get(state.tp)
                partition_row(
                    statistics,
                    state.tp.topic,
                    state.tp.partition,
                    leader.id if (leader := view.leader(state.tp)) is not None else -1,
                    fetch_state=_FETCH_STATES[state.state],
                    fetchq_size=waiting,
                    next_offset=_or_unknown(state.fetch_offset),
                    app_offset=_or_unknown(state.position),
                    stored_offset=_or_unknown(state.processed),
                    stored_leader_epoch=state.processed_epoch,
                    committed_offset=_UNKNOWN if done is None else done.offset,
                    commited_offset=_UNKNOWN if done is None else done.offset,
                    committed_leader_epoch=-1 if done is None else done.leader_epoch,
                    eof_offset=_or_unknown(state.eof_offset),
                    lo_offset=_or_unknown(state.log_start_offset),
                    hi_offset=_or_unknown(state.high_watermark),
                    ls_offset=_or_unknown(state.last_stable_offset),
                    consumer_lag=_lag(end, state.position),
                    consumer_lag_stored=_lag(end, state.processed),
                    leader_epoch=view.leader_epoch(state.tp),
                    rxmsgs=records,
                    rxbytes=size,
                    msgs=records,
                )
        if core.coordinator is not None:
            statistics["cgrp"] = core.coordinator.statistics()

    return fill


def _or_unknown(offset: int) -> int:
    return offset if offset >= 0 else _UNKNOWN


def _lag(end: int, position: int) -> int:
    return max(0, end - position) if end >= 0 and position >= 0 else -1


def producer_source(core: "ProducerCore") -> Source:
    """Returns the function that fills in a producer's fields."""
    config = core.config
    traffic = core.sender.traffic
    started = core.clock.monotonic()

    def fill(statistics: dict[str, Any]) -> None:
        statistics["msg_size_max"] = config.buffer_memory
        statistics["txmsgs"], statistics["txmsg_bytes"] = traffic.records, traffic.bytes
        for topic, (sizes, counts) in tuple(traffic.sizes.items()):
            topic_row(statistics, topic, sizes=sizes, counts=counts)
        view = core.client.metadata.view
        for queues in list(core.accumulator.topics.values()):
            for queue in list(queues.queues):
                batches = list(queue.batches)
                records, size = traffic.partitions.get(queue.tp, (0, 0))
                count, waiting = sum(map(len, batches)), sum(batch.size_in_bytes for batch in batches)
                partition_row(
                    statistics,
                    queue.tp.topic,
                    queue.tp.partition,
                    queue.leader,
                    msgq_cnt=count,
                    msgq_bytes=waiting,
                    leader_epoch=view.leader_epoch(queue.tp),
                    txmsgs=records,
                    txbytes=size,
                    msgs=records + count,
                )
                statistics["msg_cnt"] += count
                statistics["msg_size"] += waiting
        if core.idempotence is not None:
            statistics["eos"] = _eos(core, int((core.clock.monotonic() - started) * 1000))

    return fill


def _eos(core: "ProducerCore", age_ms: int) -> dict[str, Any]:
    assert core.idempotence is not None
    identity = core.idempotence.sequences.identity
    transactions = core.transactions
    return {
        "idemp_state": "Assigned" if identity.is_valid else "WaitPID",
        "idemp_stateage": age_ms,
        "txn_state": "Init" if transactions is None else _TXN_STATES[transactions.state.value],
        "txn_stateage": age_ms,
        "txn_may_enq": transactions is not None and transactions.is_open,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "epoch_cnt": max(0, identity.epoch + 1),
    }


_TXN_STATES = {
    "uninitialized": "Init",
    "initializing": "WaitPID",
    "ready": "Ready",
    "in transaction": "InTransaction",
    "committing": "CommittingTransaction",
    "aborting": "AbortingTransaction",
    "abortable error": "AbortableError",
    "fatal error": "FatalError",
}
