"""The registry of built-in pipelines: the only place in this package that names pipelines that ship with Headrace.

To add a built-in pipeline, add an entry here. Its module is imported only when the pipeline is used: listing the
pipelines is quick and needs no Spark.
"""

import importlib
from dataclasses import dataclass

from headrace.pipelines.pipeline import Pipeline


@dataclass(frozen=True)
class BuiltInPipeline:
    """Where a built-in pipeline is defined, and the line that `headrace pipeline list` prints for it."""

    module: str
    attribute: str
    summary: str

    def load(self) -> Pipeline:
        """Imports the module and returns its pipeline."""
        pipeline = getattr(importlib.import_module(self.module), self.attribute)
        assert isinstance(pipeline, Pipeline)
        return pipeline


BUILT_IN_PIPELINES = {
    "ods-dwd": BuiltInPipeline(
        "headrace.shop.ods_dwd", "ods_dwd", "An online shop: turns raw app and database events into clean rows."
    ),
    "dws-traffic": BuiltInPipeline(
        "headrace.shop.dws_traffic", "dws_traffic", "The shop's traffic, orders and revenue per minute."
    ),
}
