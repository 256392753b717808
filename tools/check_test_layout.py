"""Checks that `tests/unit` mirrors `src`: each test file belongs to a module.

    src/headrace/broker/fetching.py      tests/unit/broker/test_fetching.py, test_fetching_limits.py ...
    src/headrace/records/_batch.pyx      tests/unit/records/test_batch.py
    src/headrace/records/*.pyi           tests/unit/records/test_stubs.py
    src/headrace/aio/                    tests/unit/test_aio.py
    tools/ensure_java                    tests/unit/tools/test_ensure_java.py

A suffix after the module's name says which aspect is tested. Prints the test files without a module, and exits with 1.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "unit"


def modules_of(package: Path) -> set[str]:
    """Returns the names of a directory's modules, packages and scripts, without leading underscores."""
    entries = [path for path in package.iterdir() if path.suffix in (".py", ".pyx", "") and path.name != "__pycache__"]
    names = {path.stem.strip("_") for path in entries}
    return names | {"stubs"} if any(package.glob("*.pyi")) else names


def belongs(test: Path) -> bool:
    place = test.relative_to(TESTS).parent
    package = ROOT / "tools" if place == Path("tools") else ROOT / "src" / "headrace" / place
    if not package.is_dir():
        return False
    name = test.stem.removeprefix("test_")
    return any(name == module or name.startswith(f"{module}_") for module in modules_of(package))


def main() -> None:
    strays = sorted(test for test in TESTS.rglob("test_*.py") if not belongs(test))
    for test in strays:
        package = test.relative_to(TESTS).parent
        print(f"{test.relative_to(ROOT)}: src/headrace/{package} has no module with this name or a prefix of it")
    sys.exit(bool(strays))


if __name__ == "__main__":
    main()
