"""The documentation is correct: its examples run, its links have targets, and generated pages are up to date."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.docs import log_lines, run_page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
IN_ORDER = {"producing.md", "consuming.md", "transactions.md", "arrow.md", "asyncio.md"}
"""Pages whose examples build on each other. On other pages, each example runs alone."""
EXAMPLES = [
    pytest.param(page, numbers, id="-".join([page.name, *numbers]))
    for page in PAGES
    for numbers in ([[]] if page.name in IN_ORDER else [[str(number)] for number in range(len(run_page.blocks(page)))])
]


@pytest.mark.parametrize(("page", "numbers"), EXAMPLES)
def test_examples_run(page: Path, numbers: list[str], tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", run_page.__file__, str(page), *numbers],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr


def test_pages_in_order_exist() -> None:
    assert {page.name for page in PAGES} >= IN_ORDER


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, content in generate.pages().items():
        assert (ROOT / "docs" / name).read_text() == content, f"docs/{name} is out of date: run make docs"


def test_log_lines_of_a_failover_are_those_of_the_source() -> None:
    lines = list(log_lines.documented_lines(ROOT / "docs" / "cluster.md"))
    assert len(lines) > 25
    assert [line for line in lines if not log_lines.is_logged(line, ROOT / "src" / "headrace")] == []


def test_design_mentions_every_module() -> None:
    design = (ROOT / "DESIGN.md").read_text()
    modules = [path for path in ROOT.glob("src/headrace/*/*.py*") if path.suffix in (".py", ".pyx")]
    missing = {path.stem for path in modules if f"`{path.stem}`" not in design} - {"__init__", "main"}
    missing -= {path.stem for path in modules if path.parent.name in ("common", "testing")}
    assert missing == set()


def test_log_tour(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "log_tour.py"), "--records", "20000"]
    ran = subprocess.run([*command, "--directory", str(tmp_path / "tour")], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "none is lost" in ran.stdout
    again = subprocess.run(
        [*command, "--directory", str(tmp_path / "tour")], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 2
    assert "is not empty" in again.stderr


def test_broker_tour() -> None:
    command = [sys.executable, str(ROOT / "examples" / "broker_tour.py"), "--records", "2000"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "2,000 records; all acknowledged records are unchanged" in ran.stdout
    assert "2,000 records, each exactly once and in order" in ran.stdout


def test_cluster_tour() -> None:
    command = [sys.executable, str(ROOT / "examples" / "cluster_tour.py"), "--embedded", "--rate", "100"]
    ran = subprocess.run([*command, "--seconds", "0.5"], capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"records lost +0\n", ran.stdout)
    assert re.search(r"records duplicated +0\n", ran.stdout)
