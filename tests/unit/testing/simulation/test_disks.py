"""The disk of a simulated broker."""

from pathlib import Path

from headrace.common.ids import make_random
from headrace.testing.simulation.disks import SimulatedDisk, make_directory
from headrace.testing.simulation.loop import START_MS


def test_listings_are_sorted_and_have_no_real_times(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    for name in ("b", "a", "c"):
        disk.open(tmp_path / name, create=True).write_at(b"x", 0)
    listing = disk.list(tmp_path)
    assert list(listing) == ["a", "b", "c"]
    assert {info.modified_ms for info in listing.values()} == {START_MS}


def test_a_power_loss_keeps_only_what_was_synced(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(20):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = SimulatedDisk(root)
        file = disk.open(root / "file", create=True)
        file.write_at(b"synced", 0)
        file.sync()
        disk.sync_directory(root)
        file.write_at(b"lost?", 6)
        opened = disk.open_files
        disk.process_ended(make_random(seed))
        assert disk.open_files is not opened
        outcomes.add(disk.read(root / "file")[:6])
    assert outcomes == {b"synced"}


def test_directory_is_removed() -> None:
    with make_directory() as directory:
        assert Path(directory).is_dir()
    assert not Path(directory).exists()
