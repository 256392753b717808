"""How the runner watches its flows. The queries are objects without Spark."""

from typing import Any

import pytest

from headrace.pipelines import runner as runner_module
from headrace.pipelines.pipeline import Flow, Pipeline, Topic
from headrace.pipelines.run_settings import RunSettings
from headrace.pipelines.runner import Runner

SLOW = RuntimeError("Python worker failed to connect back.")


class FailingQuery:
    """A query that has failed, fails again as soon as it is restarted, and ends after its second restart."""

    active = False
    initializing = False

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.restarts = 0

    @property
    def failed(self) -> BaseException | None:
        return SLOW if self.restarts < 2 else None

    def may_restart(self) -> bool:
        return self.failed is not None

    def has_given_up(self) -> bool:
        return False

    def restart(self) -> str:
        self.restarts += 1
        return str(SLOW)

    def new_progress(self) -> list[Any]:
        return []


def test_restarts_flow_that_fails_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow("copy", {"in": Topic("in")}, split=lambda frame, batch: {"copy": frame})
    query = FailingQuery(flow)
    for name, value in {
        "count_executor_cores": 1,
        "_create_session": None,
        "prepare_topics": None,
        "_pickle_files_by_value": None,
        "_create_query": query,
    }.items():
        monkeypatch.setattr(runner_module, name, lambda *_, value=value: value)
    settings = RunSettings(bootstrap_servers="localhost:1", checkpoint="checkpoint", publish_status=False)
    spark: Any = None
    Runner(Pipeline.of("again", [flow], {"copy": "out"}), spark, settings).run()
    assert query.restarts == 2
