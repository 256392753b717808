"""The mutation tests' own parts: which changes are found, how tests are chosen, and what is reported."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.mutants.__main__ import CRITICAL_MODULES, read_sources, sample, stale_entries
from tools.mutants.mutations import Mutation, diff_of, find_mutations
from tools.mutants.report import read_explained, summary, unexplained, write_report
from tools.mutants.runner import Outcome, Result, Runner, copy_tree, select
from tools.mutants.test_map import Test, TestMap, measure
from tools.mutants.tracing import functions_of

ROOT = Path(__file__).parents[3]


def changes(source: str) -> set[str]:
    return {f"{each.before} -> {each.after}" for each in find_mutations("a.py", source)}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = a < b", {"a < b -> a <= b"}),
        ("x = a >= b", {"a >= b -> a > b"}),
        ("x = a is None", {"a is None -> a is not None"}),
        ("x = 0 < a < b", {"0 < a < b -> 0 <= a < b", "0 < a < b -> 0 < a <= b", "0 -> 1", "0 -> (-1)"}),
        ("x = a + 7", {"a + 7 -> (a - 7)", "7 -> 8", "7 -> 6"}),
        ("x = a & b", {"a & b -> (a | b)"}),
        ("x = True", {"True -> False"}),
        ("x = a and b", {"a and b -> (a or b)"}),
        ("x = not a", {"not a -> (a)"}),
        ("x = max(a, b)", {"max(a, b) -> min(a, b)"}),
        ("x = b if a else c", {"b if a else c -> (b if not a else c)"}),
        ("x = [b for b in a if b]", {"b -> not (b)"}),
        ("self.x = a", {"self.x = a -> pass"}),
        ("x += a", {"x += a -> x -= a", "x += a -> pass"}),
        ("await a(b)", {"await a(b) -> pass"}),
        ("raise ValueError('1')", {"raise ValueError('1') -> pass"}),
        ("return a", {"a -> None"}),
        ("return False", {"False -> True"}),
        ("if a: b()", {"a -> not (a)", "b() -> pass"}),
        ("while a: break", {"a -> not (a)", "break -> continue"}),
        ("for a in b: continue", {"continue -> break"}),
        ("with a(b=1): c()", {"1 -> 2", "1 -> 0", "c() -> pass"}),
        ("try: a()\n    finally: b()", {"a() -> pass", "b() -> pass"}),
        ("try: a()\n    except E: b()", {"a() -> pass", "b() -> pass"}),
        ("match a:\n        case 1: b()", {"b() -> pass"}),
    ],
)
def test_finds_changes(statement: str, expected: set[str]) -> None:
    assert changes(f"async def f():\n    {statement}\n") == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Documentation 1."""',
        "__all__ = [1]",
        "x: Literal[1]",
        "if TYPE_CHECKING:\n    x = 1",
        "def f():\n    assert a < 1",
        "def f():\n    _logger.info('%s', 1)",
        "def f():\n    x = f'{a + 1}'",
        "class A:\n    def __repr__(self):\n        return 1",
    ],
)
def test_leaves_out_harmless_places(source: str) -> None:
    assert changes(source) == set()


def test_change_is_applied_to_its_place_only() -> None:
    source = "# ─▶\ndef f(a, b):\n    'ä'; return (a +  # why\n        b) * 2\n"
    (mutation,) = (each for each in find_mutations("a.py", source) if each.after == "(a - b)")
    assert mutation.apply(source) == "# ─▶\ndef f(a, b):\n    'ä'; return ((a - b)) * 2\n"
    assert (mutation.line, mutation.function, mutation.kind) == (3, "f", "operator")
    assert "-    'ä'; return (a +  # why" in diff_of(mutation, source)


def test_functions_have_qualified_names() -> None:
    source = "class A:\n    def f(self, x=1):\n        def g():\n            return lambda: h()\n"
    assert {(each.function, each.before) for each in find_mutations("a.py", source)} == {
        ("", "1"),
        ("A.f.<locals>.g", "lambda: h()"),
    }


def test_fingerprint_depends_on_the_statement_only() -> None:
    source = "def f(a):\n    g(a < 1)\n    g(a < 1)\n"
    before = [each.fingerprint for each in find_mutations("a.py", source)]
    after = [each.fingerprint for each in find_mutations("a.py", f"import x\n\ndef g(): ...\n\n{source}")]
    assert before == after
    assert len(set(before)) == len(before), "equal statements have different fingerprints"
    other = [each.fingerprint for each in find_mutations("a.py", source.replace("g(", "h("))]
    assert not set(before) & set(other)


def test_every_mutation_of_a_critical_module_compiles() -> None:
    sources = read_sources(ROOT / "src" / "headrace", ["storage/flushing.py", "broker/delayed_produce.py"])
    assert len(sources) == 2
    for path, source in sources.items():
        for mutation in find_mutations(path, source):
            compile(mutation.apply(source), path, "exec")


def test_critical_modules_exist() -> None:
    for pattern in CRITICAL_MODULES:
        sources = read_sources(ROOT / "src" / "headrace", [pattern])
        assert sources, pattern
        assert not any(path.endswith(("__init__.py", "/config.py")) for path in sources)


def mutations(count: int, path: str = "storage/log.py", function: str = "Log.append") -> list[Mutation]:
    return [Mutation(path, function, number, "constant", "1", "2", f"{path}{number}", 0, 0) for number in range(count)]


def test_sample_depends_on_seed() -> None:
    every = mutations(100)
    assert sample(every, "1", 10) == sample(every, "1", 10)
    assert sample(every, "1", 10) != sample(every, "2", 10)
    assert sample(every[::-1], "1", 10) == sample(every, "1", 10)
    assert len(sample(every, "1", 0)) == 100
    with_others = sample(every + mutations(100, "other.py"), "1", 20)
    assert [each for each in with_others if each.path == "storage/log.py"] == sample(every, "1", 20)[
        : sum(each.path == "storage/log.py" for each in with_others)
    ]


def test_nearest_and_quickest_tests_come_first() -> None:
    test_map = TestMap()
    test_map.add("tests/integration/test_all.py::a", 0.1, ["storage/log.py:Log.append"])
    test_map.add("tests/unit/broker/test_x.py::a", 0.1, ["storage/log.py:Log.append", "storage/log.py:Log.read"])
    test_map.add("tests/unit/storage/test_log_rolling.py::slow", 5, ["storage/log.py:Log.append"])
    test_map.add("tests/unit/storage/test_log.py::quick", 1, ["storage/log.py:Log.append"])
    (in_function,) = mutations(1)
    assert [test.name.rpartition("::")[2] for test in test_map.tests_of(in_function)] == ["quick", "slow", "a", "a"]
    (in_module,) = mutations(1, function="")
    assert len(test_map.tests_of(in_module)) == 4
    (unknown,) = mutations(1, function="Log.other")
    assert test_map.tests_of(unknown) == []


def test_selection_has_at_least_one_test_within_limits() -> None:
    tests = [Test("a", 20), Test("b", 1), Test("c", 1)]
    assert select(tests, 15, 10) == tests[:1]
    assert select(tests[1:], 15, 10) == tests[1:]
    assert select(tests[1:], 15, 1) == tests[1:2]
    assert select([], 15, 10) == []


def test_trace_names_functions_without_lambdas() -> None:
    code = compile("class A:\n def f(self):\n  return lambda: 1", "/x/src/headrace/storage/log.py", "exec")
    (klass,) = (each for each in code.co_consts if hasattr(each, "co_name"))
    (function,) = (each for each in klass.co_consts if hasattr(each, "co_name"))
    (inner,) = (each for each in function.co_consts if hasattr(each, "co_name"))
    outside = compile("1", "/x/lib/other.py", "exec")
    assert functions_of({function, inner, outside}) == ["storage/log.py:A.f"]


def result(number: int, outcome: Outcome) -> Result:
    return Result(find_mutations("storage/log.py", SOURCE)[number], outcome, tests_run=3, tests_left_out=1)


SOURCE = "def f(a):\n    return a < 1\n"


def test_report_separates_explained_survivors(tmp_path: Path) -> None:
    results = [result(0, Outcome.SURVIVED), result(1, Outcome.UNTESTED), result(2, Outcome.TIMEOUT)]
    explained = {results[0].mutation.fingerprint: "for a good reason"}
    assert unexplained(results, explained) == results[1:2]
    assert summary(results, explained) == "3 mutants: 1 detected (1 by a timeout), 1 explained, 1 survived"
    write_report(tmp_path / "report.md", results, {"storage/log.py": SOURCE}, explained, "make mutants")
    text = (tmp_path / "report.md").read_text()
    assert "| storage/log.py | 3 | 1 | 1 | 1 |" in text
    unexplained_part, _, explained_part = text.partition("## Explained survivors")
    assert "no test calls this function" in unexplained_part
    assert "for a good reason" in explained_part
    assert "3 tests passed, 1 were left out" in explained_part
    assert "-    return a < 1" in text


def test_explanations_are_complete_and_unique(tmp_path: Path) -> None:
    explained = read_explained(ROOT / "tools" / "mutants" / "explained.toml")
    assert all(len(reason) > 10 for reason in explained.values())
    path = tmp_path / "explained.toml"
    path.write_text('[[explained]]\nfingerprint = "a"\nreason = "b"\n')
    with pytest.raises(ValueError, match="has no change"):
        read_explained(path)
    path.write_text('[[explained]]\nfingerprint = "a"\nreason = "b"\nchange = "c"\n' * 2)
    with pytest.raises(ValueError, match="occurs twice"):
        read_explained(path)


def test_stale_explanations_are_found_in_full_runs_only() -> None:
    explained = {"gone": "reason", mutations(1)[0].fingerprint: "reason"}
    assert stale_entries(explained, mutations(1), list(CRITICAL_MODULES)) == {"gone"}
    assert stale_entries(explained, mutations(1), ["storage/*.py"]) == set()


MODULE = """def is_small(number):
    return number < 10


def unused():
    return 1
"""
TEST_FILE = """from headrace.sizes import is_small


def test_is_small():
    assert is_small(1)
    assert not is_small(11)


def test_limit():
    assert {limit}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project with one module, one test file, and these tools."""
    package = tmp_path / "src" / "headrace"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text(MODULE)
    (tmp_path / "tests" / "unit" / "storage").mkdir(parents=True)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:headrace -p no:timeout --import-mode=importlib\n")
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "survivors"),
    [("True", {"10 -> 9", "10 -> 11", "number < 10 -> number <= 10"}), ("not is_small(10)", {"10 -> 9"})],
)
def test_runs_mutants_against_the_tests_that_call_them(tree: Path, limit: str, survivors: set[str]) -> None:
    test_file = tree / "tests" / "unit" / "storage" / "test_sizes.py"
    test_file.write_text(TEST_FILE.format(limit=limit))
    paths = [ROOT / "tools" / "mutants" / "overlay", tree / "src", tree]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    lines: list[str] = []
    test_map = measure(tree, tree / "cache", 1, False, lines.append, environment)
    assert lines[-1].endswith("test_sizes.py: 2 tests")
    measure(tree, tree / "cache", 1, False, lambda line: pytest.fail(line), environment)
    runner = Runner(tree, test_map, environment)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(runner.run, find_mutations("sizes.py", MODULE)))
    outcomes = {f"{each.mutation.before} -> {each.mutation.after}": each.outcome for each in results}
    untested = {change for change, outcome in outcomes.items() if outcome is Outcome.UNTESTED}
    assert untested == {"1 -> None", "1 -> 2", "1 -> 0"}
    assert {change for change, outcome in outcomes.items() if outcome is Outcome.SURVIVED} == survivors
    assert outcomes["number < 10 -> None"] is Outcome.DETECTED
    assert (tree / "src" / "headrace" / "sizes.py").read_text() == MODULE


def test_test_that_fails_without_mutation_detects_nothing(tree: Path) -> None:
    directory = tree / "tests" / "integration" / "storage"
    directory.mkdir(parents=True)
    (directory / "test_order.py").write_text(
        "from headrace.sizes import is_small\n"
        "has_run = False\n"
        "def test_a():\n    global has_run\n    has_run = True\n    is_small(1)\n"
        "def test_b():\n    assert has_run\n    is_small(1)\n"
        "def test_c():\n    assert is_small(1)\n"
    )
    paths = [ROOT / "tools" / "mutants" / "overlay", tree / "src", tree]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    measured = measure(tree, tree / "cache", 1, False, lambda line: None, environment)
    in_other_order = TestMap()
    (mutation,) = (
        each for each in find_mutations("sizes.py", MODULE) if each.before == "number < 10" and each.after == "None"
    )
    assert len(measured.tests_of(mutation)) == 3
    for index, name in enumerate("bca"):
        in_other_order.add(f"tests/integration/storage/test_order.py::test_{name}", index, ["sizes.py:is_small"])
    result = Runner(tree, in_other_order, environment).run(mutation)
    assert (result.outcome, result.detected_by) == (
        Outcome.DETECTED,
        "tests/integration/storage/test_order.py::test_c",
    )


def test_hang_counts_as_detection(tree: Path) -> None:
    test_file = tree / "tests" / "unit" / "storage" / "test_sizes.py"
    test_file.write_text("from headrace.sizes import is_small\ndef test_a():\n    while not is_small(1): pass\n")
    paths = [ROOT / "tools" / "mutants" / "overlay", tree / "src", tree]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    test_map = measure(tree, tree / "cache", 1, False, lambda line: None, environment)
    runner = Runner(tree, test_map, environment, startup_seconds=12)
    (mutation,) = (
        each for each in find_mutations("sizes.py", MODULE) if each.before == "number < 10" and each.after == "None"
    )
    assert runner.run(mutation).outcome is Outcome.TIMEOUT


def test_overlay_replaces_module_in_child_processes(tree: Path, tmp_path: Path) -> None:
    mutant = tmp_path / "mutant.py"
    mutant.write_text("def is_small(number):\n    return 'mutant'\n")
    code = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', sys.argv[1]], text=True))"
    child = "from headrace.sizes import is_small; print(is_small(1))"
    paths = [ROOT / "tools" / "mutants" / "overlay", tree / "src"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HEADRACE_MUTANT": f"headrace.sizes:{mutant}",
    }
    output = subprocess.run(
        [sys.executable, "-c", code, child], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "mutant"


def test_copies_known_files_and_compiled_modules(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    for name in ("src/a.py", "src/a.so", "src/a.c", "new.txt"):
        (root / name).write_text(name)
    (root / ".gitignore").write_text("*.so\n*.c\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    copy_tree(root, tmp_path / "tree")
    found = {
        path.relative_to(tmp_path / "tree").as_posix() for path in (tmp_path / "tree").rglob("*") if path.is_file()
    }
    assert found == {"src/a.py", "src/a.so", "new.txt", ".gitignore"}


def test_selection_runs_listed_tests_in_order(tree: Path) -> None:
    test_file = tree / "tests" / "test_many.py"
    test_file.write_text("\n".join(f"def test_{name}(): pass" for name in "abc"))
    listed = tree / "list.json"
    listed.write_text(json.dumps(["tests/test_many.py::test_c", "tests/test_many.py::test_a"]))
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "tools.mutants.selection", "tests"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "HEADRACE_MUTANT_TESTS": str(listed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.index("test_c PASSED") < output.index("test_a PASSED")
    assert "2 passed, 1 deselected" in output
