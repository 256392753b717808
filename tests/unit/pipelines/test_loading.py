"""From a name to a pipeline."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines import PipelineError
from headrace.pipelines.loading import BUILT_IN, load

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


def test_a_file_with_one_pipeline(tmp_path: Path) -> None:
    path = file(tmp_path, ONE)
    assert load(path).name == "paid-orders"
    assert load(f"{path}:paid-orders").name == "paid-orders"


def test_of_several_one_is_chosen(tmp_path: Path) -> None:
    path = file(tmp_path, ONE + ONE.replace("paid_orders", "other"))
    assert load(f"{path}:other").name == "other"
    with pytest.raises(PipelineError, match=r"several pipelines \(paid-orders, other\): say which, as .*:paid-orders"):
        load(path)
    with pytest.raises(PipelineError, match="defines no pipeline 'third'; it has: paid-orders, other"):
        load(f"{path}:third")


def test_a_file_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("NAME = 'beside'\n")
    path = file(tmp_path, f"from beside_mine import NAME\n{ONE}")
    try:
        assert load(path).name == "paid-orders"
    finally:
        sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "defines no pipeline: expected a function with @pipeline"),
        ("x = 1\ny = 1 / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        ("x = (\n", "mine.py:1: SyntaxError: "),
        ("import no_such_module_here\n", "mine.py:1: No module named 'no_such_module_here'"),
        (ONE.replace("(orders)", "(refunds)"), "parameter 'refunds' is none of its sources"),
    ],
)
def test_files_that_do_not_work_are_told_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PipelineError) as caught:
        load(file(tmp_path, text))
    assert said in str(caught.value)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(PipelineError, match=r"no file nowhere\.py"):
        load("nowhere.py")
    with pytest.raises(PipelineError, match="no pipeline 'orders': expected ods-dwd, dws-traffic, or a Python file"):
        load("orders")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_listed_is_there(name: str) -> None:
    found = load(name)
    assert found.name == name
    assert found.summary


def test_defining_and_listing_need_no_spark(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.argv[1:] = []; from headrace.pipelines.loading import load; load({file(tmp_path, ONE)!r})\n"
        "from headrace.cli.main import main; main(['pipeline', 'list'], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "ods-dwd" in ran.stdout
