"""Resolves the pipeline name that a user gives: a built-in pipeline, or a pipeline in a Python file. Driver only.

ods-dwd                   a built-in pipeline
my_pipelines.py           the only pipeline in the file
my_pipelines.py:orders    the pipeline named `orders` in the file
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headrace.pipelines.built_in import BUILT_IN_PIPELINES
from headrace.pipelines.pipeline import Pipeline, PipelineError

_FILE_MODULE = "headrace_pipeline_"
"""The prefix of the module names of pipeline files."""
_INSTALLED = ("headrace", "__main__")
"""Modules that workers can import, even if the pipeline's file is in a directory above them."""


def modules_of_files() -> list[ModuleType]:
    """Returns the modules of all loaded pipeline files, and their neighbours that they imported.

    Spark's workers cannot import them: on a cluster the files do not exist there.
    """
    loaded = {name: Path(str(module.__file__)).resolve() for name, module in _loaded_modules()}
    directories = {path.parent for name, path in loaded.items() if name.startswith(_FILE_MODULE)}
    return [
        module
        for name, module in _loaded_modules()
        if any(loaded[name].is_relative_to(directory) for directory in directories)
        and name.partition(".")[0] not in _INSTALLED
        and "site-packages" not in loaded[name].parts
    ]


def _loaded_modules() -> list[tuple[str, ModuleType]]:
    return [(name, module) for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)]


def load_pipeline(name: str) -> Pipeline:
    """Returns the pipeline with this name."""
    path, colon, pipeline_name = name.rpartition(":") if ".py:" in name else (name, "", "")
    if path.endswith(".py"):
        pipelines = [value for value in vars(_execute(path)).values() if isinstance(value, Pipeline)]
        return _choose(path, pipelines, pipeline_name if colon else None)
    if name not in BUILT_IN_PIPELINES:
        raise PipelineError(
            f"unknown pipeline {name!r}: expected {', '.join(BUILT_IN_PIPELINES)}, or a Python file (mine.py)"
        )
    return BUILT_IN_PIPELINES[name].load()


def module_of(name: str) -> ModuleType | None:
    """Returns the module of a pipeline that `load_pipeline` has loaded from a file, or None for a built-in pipeline."""
    path = name.rpartition(":")[0] if ".py:" in name else name
    return sys.modules.get(_module_name(Path(path)))


def _module_name(file: Path) -> str:
    return f"{_FILE_MODULE}{file.stem}"


def _execute(path: str) -> ModuleType:
    """Executes a Python file and returns it as a module. Errors name the line of the file."""
    file = Path(path)
    if not file.is_file():
        raise PipelineError(f"file not found: {path}")
    spec = importlib.util.spec_from_file_location(_module_name(file), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    directory = str(file.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)  # as `python file.py` does: the file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except PipelineError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyspark":
            raise
        raise PipelineError(f"{path}{_line_of(error, file)}: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise PipelineError(f"{path}{_line_of(error, file)}: {type(error).__name__}: {error}") from error
    return module


def _line_of(error: Exception, file: Path) -> str:
    """Returns `:<line>` of the user's file where the error was raised, or an empty string."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _choose(path: str, pipelines: list[Pipeline], name: str | None) -> Pipeline:
    names = ", ".join(pipeline.name for pipeline in pipelines)
    if not pipelines:
        raise PipelineError(f"{path} defines no pipeline: expected a function with @pipeline, or a Pipeline object")
    if name is not None:
        for pipeline in pipelines:
            if pipeline.name == name:
                return pipeline
        raise PipelineError(f"{path} defines no pipeline {name!r}; it defines: {names}")
    if len(pipelines) > 1:
        raise PipelineError(
            f"{path} defines several pipelines ({names}): choose one, for example {path}:{pipelines[0].name}"
        )
    return pipelines[0]
