"""A pytest plugin that runs the tests of a list in its order, whatever characters their names have.

HEADRACE_MUTANT_TESTS=/path/to/list.json
"""

import json
import os
import sys
from pathlib import Path

import pytest

sys.meta_path.sort(key=lambda finder: type(finder).__name__ != "MutantFinder")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = os.environ.get("HEADRACE_MUTANT_TESTS")
    if listed is None:
        return
    order = {name: index for index, name in enumerate(json.loads(Path(listed).read_text()))}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
