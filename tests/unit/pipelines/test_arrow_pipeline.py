"""The decorator for pipelines with one Arrow flow."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines import ArrowFlow, PipelineError, Task, arrow_pipeline


def test_function_with_and_without_task() -> None:
    @arrow_pipeline(sources={"rows": "in"}, outputs={"out": "there"}, settings={"limit": 3})
    def copy_rows(rows: Any) -> Any:
        """Copies rows."""
        return {"out": rows}

    @arrow_pipeline("named", sources={"rows": "in"}, outputs={"out": "there"}, state=lambda task: object())  # type: ignore[arg-type, return-value]
    def other(rows: Any, task: Task) -> Any:
        return {"out": rows, "batch": task.batch_id}

    assert (copy_rows.name, copy_rows.summary, copy_rows.settings) == ("copy-rows", "Copies rows.", {"limit": 3})
    (flow,), (other_flow,) = copy_rows.flows, other.flows
    assert isinstance(flow, ArrowFlow)
    assert isinstance(other_flow, ArrowFlow)
    rows = pa.record_batch({"value": [b"x"]})
    task = Task("rows", "in", 0, 7, {})
    assert flow.transform(rows, task) == {"out": rows}
    assert other_flow.transform(rows, task)["batch"] == 7
    assert (flow.state, other.name) == (None, "named")
    assert other_flow.state is not None


def test_wrong_number_of_parameters() -> None:
    with pytest.raises(PipelineError, match="pipeline three: the function has 3 parameters; expected the records"):

        @arrow_pipeline(sources={"rows": "in"}, outputs={"out": "there"})
        def three(rows: Any, task: Any, more: Any) -> Any:
            return {}
