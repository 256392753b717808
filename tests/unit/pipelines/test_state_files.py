"""State files: complete or absent, with damage detected."""

from pathlib import Path

import pytest

from headrace.pipelines.state_files import DELTA, NO_BATCH, SNAPSHOT, StateFile, StateFileError, StateFiles


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(f"file:{tmp_path}", "orders", 3)


def test_reads_what_was_written(files: StateFiles, tmp_path: Path) -> None:
    files.write(StateFile(7, DELTA), 5, b"changes\nof batch 7")
    assert files.read(StateFile(7, DELTA)) == (5, b"changes\nof batch 7")
    assert [path.name for path in (tmp_path / "orders-3").iterdir()] == ["delta-0000000007"]


def test_a_replay_overwrites(files: StateFiles) -> None:
    files.write(StateFile(1, DELTA), NO_BATCH, b"first attempt")
    files.write(StateFile(1, DELTA), NO_BATCH, b"second")
    assert files.read(StateFile(1, DELTA)) == (NO_BATCH, b"second")


def test_lists_earlier_files_in_order(files: StateFiles) -> None:
    assert files.files_before(5) == []
    for batch_id, kind in ((12, SNAPSHOT), (2, DELTA), (12, DELTA), (13, DELTA)):
        files.write(StateFile(batch_id, kind), NO_BATCH, b"")
    assert files.files_before(13) == [StateFile(2, DELTA), StateFile(12, DELTA), StateFile(12, SNAPSHOT)]


def test_deletes_earlier_and_unfinished_files(files: StateFiles, tmp_path: Path) -> None:
    for batch_id in (1, 2, 3):
        files.write(StateFile(batch_id, DELTA), NO_BATCH, b"")
    (tmp_path / "orders-3" / ".delta-0000000001-abc").write_bytes(b"unfinished")
    (tmp_path / "orders-3" / ".delta-0000000003-abc").write_bytes(b"unfinished")
    (tmp_path / "orders-3" / "notes").write_bytes(b"of the user")
    files.delete_before(3)
    names = {path.name for path in (tmp_path / "orders-3").iterdir()}
    assert names == {"delta-0000000003", ".delta-0000000003-abc", "notes"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "expected 5 bytes"),
        (lambda content: content[:-1] + b"!", "checksum"),
        (lambda content: b"", "not a header"),
        (lambda content: content.replace(b'"format": 1', b'"format": 9'), "has format 9"),
    ],
)
def test_damage_is_an_error_that_names_the_file(files: StateFiles, damage: object, message: str) -> None:
    assert callable(damage)
    files.write(StateFile(1, SNAPSHOT), NO_BATCH, b"state")
    path = Path(files.path(StateFile(1, SNAPSHOT)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateFileError, match=message) as caught:
        files.read(StateFile(1, SNAPSHOT))
    assert str(path) in str(caught.value)


def test_missing_file(files: StateFiles) -> None:
    with pytest.raises(StateFileError, match="snapshot-0000000001 is missing"):
        files.read(StateFile(1, SNAPSHOT))
