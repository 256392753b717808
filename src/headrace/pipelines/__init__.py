"""Streaming pipelines in plain PySpark. See docs/pipelines.md.

    from headrace.pipelines import Table, Topic, parse_json, pipeline

Importing this package is quick: Spark is imported only when a pipeline runs.
"""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports
from headrace.pipelines.arrow_flow import ArrowFlow, PartitionState, Task
from headrace.pipelines.arrow_pipeline import arrow_pipeline
from headrace.pipelines.pipeline import Batch, Context, Flow, Pipeline, PipelineError, Table, Topic, pipeline

if TYPE_CHECKING:
    from headrace.pipelines.audit import Audit
    from headrace.pipelines.dead_letters import Parsed, dead_letter_value, parse_json
    from headrace.pipelines.json_columns import JsonRows, read_json
    from headrace.pipelines.json_output import rows_to_json
    from headrace.pipelines.json_records import ParsedRecords, parse_records
    from headrace.pipelines.run_settings import RunSettings
    from headrace.pipelines.runner import Runner, run

__all__ = [
    "ArrowFlow",
    "Audit",
    "Batch",
    "Context",
    "Flow",
    "JsonRows",
    "Parsed",
    "ParsedRecords",
    "PartitionState",
    "Pipeline",
    "PipelineError",
    "RunSettings",
    "Runner",
    "Table",
    "Task",
    "Topic",
    "arrow_pipeline",
    "dead_letter_value",
    "parse_json",
    "parse_records",
    "pipeline",
    "read_json",
    "rows_to_json",
    "run",
]

_MODULES = {
    "Audit": "headrace.pipelines.audit",
    "Parsed": "headrace.pipelines.dead_letters",
    "dead_letter_value": "headrace.pipelines.dead_letters",
    "parse_json": "headrace.pipelines.dead_letters",
    "JsonRows": "headrace.pipelines.json_columns",
    "read_json": "headrace.pipelines.json_columns",
    "rows_to_json": "headrace.pipelines.json_output",
    "ParsedRecords": "headrace.pipelines.json_records",
    "parse_records": "headrace.pipelines.json_records",
    "Runner": "headrace.pipelines.runner",
    "RunSettings": "headrace.pipelines.run_settings",
    "run": "headrace.pipelines.runner",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
