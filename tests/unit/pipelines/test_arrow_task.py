"""Parts of a task of an Arrow flow that need neither a broker nor Spark."""

from pathlib import Path

import pytest

from headrace.pipelines.arrow_task import TaskResult, _check_checkpoint, _find_source
from headrace.pipelines.pipeline import Topic
from headrace.pipelines.state_files import StateFileError


def test_result_for_the_driver() -> None:
    result = TaskResult(3, {"out": 2}, {"table": {"rows": 1, "files": ["day=1/x.parquet"]}}, {"late": 0.5})
    assert TaskResult.from_bytes(result.to_bytes()) == result


def test_source_of_a_topic() -> None:
    sources = {"a": Topic("t, u", columns=("key",)), "b": Topic("v")}
    assert _find_source(sources, "u") == ("a", ("key",))
    assert _find_source(sources, "v")[0] == "b"
    assert _find_source({"p": Topic(pattern="x.*")}, "x1")[0] == "p"


def test_checkpoint_that_a_worker_does_not_see(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="storage that the driver and all workers share"):
        _check_checkpoint(f"file:{tmp_path}")
    (tmp_path / "flow.json").write_text("{}")
    _check_checkpoint(f"file:{tmp_path}")
