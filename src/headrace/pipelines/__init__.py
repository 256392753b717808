"""Streaming pipelines in plain PySpark. See docs/pipelines.md.

    from headrace.pipelines import Table, Topic, parse_json, pipeline

Importing this package is quick: Spark is imported only when a pipeline runs.
"""

from typing import TYPE_CHECKING, Any

from headrace.pipelines.pipeline import Batch, Context, Flow, Pipeline, PipelineError, Table, Topic, pipeline

if TYPE_CHECKING:
    from headrace.pipelines.dead_letters import Parsed, dead_letter_value, parse_json
    from headrace.pipelines.run_settings import RunSettings
    from headrace.pipelines.runner import Runner, run

__all__ = [
    "Batch",
    "Context",
    "Flow",
    "Parsed",
    "Pipeline",
    "PipelineError",
    "RunSettings",
    "Runner",
    "Table",
    "Topic",
    "dead_letter_value",
    "parse_json",
    "pipeline",
    "run",
]

_LAZY = {
    "Parsed": "dead_letters",
    "dead_letter_value": "dead_letters",
    "parse_json": "dead_letters",
    "Runner": "runner",
    "RunSettings": "run_settings",
    "run": "runner",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
