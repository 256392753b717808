"""The generated files are up to date, and kio is not needed at run time."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.protocol.samples import all_messages

from headrace.protocol import APIS

PROJECT = Path(__file__).parents[3]


def test_generated_files_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_messages", PROJECT / "tools" / "generate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = generator
    try:
        spec.loader.exec_module(generator)
        stale = list(generator.stale(generator.generate()))
    finally:
        del sys.modules[spec.name]
    assert stale == [], "run tools/generate_messages.py"


IMPORTS = """
import sys
import headrace.protocol
loaded = [name for name in sys.modules if name.startswith("headrace.protocol.messages.")]
assert loaded == [], loaded
for api in headrace.protocol.APIS.values():
    headrace.protocol.encode(api.request(), api.last_version)
    headrace.protocol.encode(api.response(), api.last_version)
print([name for name in sys.modules if name.partition(".")[0] in ("kio", "pyarrow", "asyncio")])
"""


def test_imports_messages_lazily_and_without_kio() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_message_of_kafka_exists() -> None:
    assert len(APIS) >= 89
    assert len(all_messages()) >= 600


@pytest.mark.parametrize("key", [0, 1, 3, 18, 75])
def test_classes_have_api_key(key: int) -> None:
    api = APIS[key]  # type: ignore[index]
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.request.__api_key__ == api.response.__api_key__ == key
