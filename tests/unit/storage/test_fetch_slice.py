from pathlib import Path

import pytest
from tests.support.storage.logs import MakeLog, append, make_batch

from headrace.storage.fetch_slice import FetchSlice
from headrace.storage.log import Log

SIZE = len(make_batch())


def slice_of(log: Log, offset: int, max_bytes: int) -> FetchSlice:
    found = log.read(offset, max_bytes).slice
    assert found is not None
    return found


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    log = make_log()
    for _ in range(4):
        append(log)
    return log


def test_slice_returns_bytes_and_batches(log: Log) -> None:
    whole = log.segments.active.path().read_bytes()
    found = slice_of(log, 1, 2 * SIZE + 10)
    assert (found.position, len(found), found.base_offset) == (SIZE, 2 * SIZE + 10, 1)
    assert found.read() == whole[SIZE : 3 * SIZE + 10]
    assert [batch.base_offset for batch in found.batches()] == [1, 2], "the last one is cut short"


def test_appends_do_not_change_slice(log: Log) -> None:
    found = slice_of(log, 3, 10_000)
    before = found.read()
    append(log)
    assert (found.read(), len(found)) == (before, SIZE)


@pytest.mark.parametrize("sent", [0, 1, SIZE, 2 * SIZE])
def test_sends_from_position(log: Log, tmp_path: Path, sent: int) -> None:
    found = slice_of(log, 1, 2 * SIZE)
    with (tmp_path / "out").open("w+b") as out:
        assert found.send_to(out.fileno(), sent) == 2 * SIZE - sent
        out.seek(0)
        assert out.read() == found.read()[sent:]
