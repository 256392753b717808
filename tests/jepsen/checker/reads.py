"""Values that were read and must not be, and values that must be read and were not."""

from collections.abc import Iterator

from tests.jepsen.checker.findings import Finding
from tests.jepsen.checker.history import Value
from tests.jepsen.checker.versions import Analysis, Transaction


def find_aborted_reads(analysis: Analysis) -> Iterator[Finding]:
    """G1a. Reads of aborted transactions count too: consumers get only committed records."""
    for reader in analysis.transactions:
        for key, pairs in reader.reads.items():
            for _, value in pairs:
                writer = analysis.writer(key, value)
                if writer is not None and writer.op.type == "fail":
                    yield Finding("G1a", f"{key} {value} was read: {reader}; its transaction failed: {writer}", key)


def find_unknown_values(analysis: Analysis) -> Iterator[Finding]:
    for reader in analysis.transactions:
        for key, pairs in reader.reads.items():
            for _, value in pairs:
                if analysis.writer(key, value) is None and value not in analysis.unfinished_writes.get(key, ()):
                    yield Finding("unknown-value", f"nobody wrote {key} {value}: {reader}", key)


def find_precommitted_reads(analysis: Analysis) -> Iterator[Finding]:
    for transaction in analysis.transactions:
        for key, pairs in transaction.writes.items():
            read = {value for _, value in transaction.reads.get(key, ())}
            own = [value for _, value in pairs if value in read]
            if own:
                yield Finding("precommitted-read", f"{key} {own}: {transaction}", key)


def find_lost_writes(analysis: Analysis) -> Iterator[Finding]:
    """All committed values up to the last one that was read must have been read by somebody.

    A value with several offsets counts where it comes first as a limit, and where it comes last as one to be read:
    duplicates are another anomaly.
    """
    for key, read in analysis.read_by_ok.items():
        order = analysis.order(key)
        limit = max((order.index_of[value] for value in read if value in order.index_of), default=-1)
        last_index: dict[Value, int] = {}
        for index, offset in enumerate(order.offsets):
            for value in order.log[offset]:
                last_index[value] = index
        for value, index in last_index.items():
            if index <= limit and value not in read:
                writer = analysis.writer(key, value)
                if writer is not None and writer.has_committed:
                    yield Finding("lost-write", _lost(key, value, writer, order.by_index[limit]), key)


def _lost(key: str, value: Value, writer: Transaction, last: Value) -> str:
    return f"{key} {value} was never read, and {last} after it was: {writer}"


def find_unseen(analysis: Analysis) -> Iterator[Finding]:
    for writer in analysis.transactions:
        if writer.op.type == "ok":
            for key, pairs in writer.writes.items():
                read = analysis.read_by_ok.get(key, set())
                for offset, value in pairs:
                    if value not in read:
                        yield Finding("unseen", f"{key} {value} at offset {offset} was never read: {writer}", key)
