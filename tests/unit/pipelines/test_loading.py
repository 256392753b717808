"""Loading a pipeline by name or from a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines import PipelineError
from headrace.pipelines.built_in import BUILT_IN_PIPELINES
from headrace.pipelines.loading import load_pipeline, modules_of_files

ONE = """
from headrace.pipelines import pipeline

@pipeline(sources={"orders": "orders"}, outputs={"paid": "paid"})
def paid_orders(orders):
    return {"paid": orders}
"""


def file(directory: Path, text: str) -> str:
    path = directory / "mine.py"
    path.write_text(text)
    return str(path)


def test_loads_the_only_pipeline_of_a_file(tmp_path: Path) -> None:
    path = file(tmp_path, ONE)
    assert load_pipeline(path).name == "paid-orders"
    assert load_pipeline(f"{path}:paid-orders").name == "paid-orders"


def test_chooses_one_of_several_pipelines_by_name(tmp_path: Path) -> None:
    path = file(tmp_path, ONE + ONE.replace("paid_orders", "other"))
    assert load_pipeline(f"{path}:other").name == "other"
    with pytest.raises(
        PipelineError, match=r"several pipelines \(paid-orders, other\): choose one, for example .*:paid-orders"
    ):
        load_pipeline(path)
    with pytest.raises(PipelineError, match="defines no pipeline 'third'; it defines: paid-orders, other"):
        load_pipeline(f"{path}:third")


def test_file_may_import_modules_from_its_directory(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("NAME = 'beside'\n")
    path = file(tmp_path, f"from beside_mine import NAME\n{ONE}")
    try:
        assert load_pipeline(path).name == "paid-orders"
    finally:
        sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no pipeline: expected a function with @pipeline"),
        ("x = 1\ny = 1 / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        ("x = (\n", "mine.py:1: SyntaxError: "),
        ("import no_such_module_here\n", "mine.py:1: No module named 'no_such_module_here'"),
        (ONE.replace("(orders)", "(refunds)"), "unknown parameter 'refunds' of the function"),
    ],
)
def test_errors_in_a_file_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        load_pipeline(file(tmp_path, text))
    assert message in str(caught.value)


def test_reports_missing_file_and_unknown_name() -> None:
    with pytest.raises(PipelineError, match=r"file not found: nowhere\.py"):
        load_pipeline("nowhere.py")
    with pytest.raises(
        PipelineError, match="unknown pipeline 'orders': expected ods-dwd, dws-traffic, or a Python file"
    ):
        load_pipeline("orders")


@pytest.mark.parametrize("name", BUILT_IN_PIPELINES)
def test_loads_every_built_in_pipeline(name: str) -> None:
    pipeline = load_pipeline(name)
    assert pipeline.name == name
    assert pipeline.summary


def test_loading_and_listing_do_not_import_spark(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv[1:] = []; from headrace.pipelines.loading import load_pipeline\n"
        f"load_pipeline({file(tmp_path, ONE)!r})\n"
        "from headrace.cli.main import main; main(['pipeline', 'list'], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "ods-dwd" in ran.stdout


def test_modules_that_workers_cannot_import(tmp_path: Path) -> None:
    (tmp_path / "rules_of_mine.py").write_text("LIMIT = 3")
    load_pipeline(file(tmp_path, f"import json\nimport rules_of_mine\n{ONE}"))
    names = {module.__name__ for module in modules_of_files() if str(tmp_path) in str(module.__file__)}
    assert names == {"headrace_pipeline_mine", "rules_of_mine"}
    assert not any(module.__name__.startswith("headrace.") for module in modules_of_files())
