"""Runs the Python blocks of a documentation page as one program, in order.

    python run_page.py docs/producing.md            all blocks
    python run_page.py README.md 1                  the second block

If a block mentions `localhost:9092`, a broker is started for the run and replaces that address; for `127.0.0.1:8080`, a
web console of a broker. Tracebacks show line numbers of the page.
"""

import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ADDRESS = "localhost:9092"
_CONSOLE = "127.0.0.1:8080"


def blocks(page: Path) -> list[str]:
    """Returns the source of each block, padded with empty lines so that line numbers match those of the page."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in _BLOCK.finditer(text)]


def run(page: Path, programs: list[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for program in programs:
        exec(compile(program, page, "exec"), names)


@contextmanager
def console(servers: str) -> Iterator[str]:
    """Runs a console that has read the cluster, and yields its address."""
    from headrace.console.server import ConsoleServer
    from headrace.console.settings import ClusterSettings, ConsoleSettings

    cluster = ClusterSettings(name="default", servers=servers)
    server = ConsoleServer(ConsoleSettings(clusters=(cluster,), port=0, interval_seconds=0.2, write=True))
    server.start()
    try:
        while True:
            try:
                urllib.request.urlopen(f"{server.url}/api/clusters/default/overview", timeout=60).close()
                break
            except urllib.error.HTTPError as error:
                error.close()
                time.sleep(0.05)
        yield server.url.removeprefix("http://")
    finally:
        server.stop()


def main(name: str, *numbers: str) -> None:
    page = Path(name)
    programs = blocks(page)
    if numbers:
        programs = [programs[int(number)] for number in numbers]
    if any(_CONSOLE in program for program in programs):
        from headrace.testing import EmbeddedBroker

        with EmbeddedBroker() as broker, console(broker.bootstrap_servers) as address:
            run(page, [program.replace(_CONSOLE, address) for program in programs])
    elif any(_ADDRESS in program for program in programs):
        from headrace.testing import EmbeddedBroker

        with EmbeddedBroker() as broker:
            run(page, [program.replace(_ADDRESS, broker.bootstrap_servers) for program in programs])
    else:
        run(page, programs)


if __name__ == "__main__":
    main(*sys.argv[1:])
