"""From the name that a user gives to a pipeline: one that comes with Headrace, or one in a file of Python. Driver only.

ods-dwd                   comes with Headrace
my_pipelines.py           the only pipeline in the file
my_pipelines.py:orders    the pipeline named `orders` in the file
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

from headrace.pipelines.pipeline import Pipeline, PipelineError


class BuiltIn(NamedTuple):
    """A pipeline that comes with Headrace: its module is imported when it is used."""

    place: str
    summary: str


BUILT_IN = {
    "ods-dwd": BuiltIn("headrace.shop.ods_dwd:ods_dwd", "An online shop: raw app and database events to clean ones."),
    "dws-traffic": BuiltIn(
        "headrace.shop.dws_traffic:dws_traffic", "The shop's traffic, orders and revenue per minute."
    ),
}


def load(name: str) -> Pipeline:
    """The pipeline of that name."""
    path, colon, chosen = name.rpartition(":") if ".py:" in name else (name, "", "")
    if path.endswith(".py"):
        return _choose(path, _pipelines(path), chosen if colon else None)
    if name not in BUILT_IN:
        raise PipelineError(f"no pipeline {name!r}: expected {', '.join(BUILT_IN)}, or a Python file (mine.py)")
    module, _, attribute = BUILT_IN[name].place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, Pipeline)
    return found


def _pipelines(path: str) -> list[Pipeline]:
    """All pipelines that a file of Python defines. What goes wrong in it is told with its line."""
    file = Path(path)
    if not file.is_file():
        raise PipelineError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(f"headrace_pipeline_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    here = str(file.resolve().parent)
    if here not in sys.path:
        sys.path.insert(0, here)  # what lies beside it can be imported, as if it were run
    try:
        spec.loader.exec_module(module)
    except PipelineError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyspark":
            raise
        raise PipelineError(f"{path}{_line_of(error, file)}: {error}") from error
    except Exception as error:  # whatever a user's file may raise
        raise PipelineError(f"{path}{_line_of(error, file)}: {type(error).__name__}: {error}") from error
    return [each for each in vars(module).values() if isinstance(each, Pipeline)]


def _line_of(error: Exception, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _choose(path: str, found: list[Pipeline], name: str | None) -> Pipeline:
    names = ", ".join(pipeline.name for pipeline in found)
    if not found:
        raise PipelineError(f"{path} defines no pipeline: expected a function with @pipeline, or a Pipeline")
    if name is not None:
        for pipeline in found:
            if pipeline.name == name:
                return pipeline
        raise PipelineError(f"{path} defines no pipeline {name!r}; it has: {names}")
    if len(found) > 1:
        raise PipelineError(f"{path} defines several pipelines ({names}): say which, as {path}:{found[0].name}")
    return found[0]
