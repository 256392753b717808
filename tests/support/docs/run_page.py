"""Runs the Python blocks of a documentation page as one program, in order.

    python run_page.py docs/producing.md            all blocks
    python run_page.py README.md 1                  the second block

If a block mentions `localhost:9092`, a broker is started for the run and replaces that address. Tracebacks show line
numbers of the page.
"""

import re
import sys
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ADDRESS = "localhost:9092"


def blocks(page: Path) -> list[str]:
    """Returns the source of each block, padded with empty lines so that line numbers match those of the page."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in _BLOCK.finditer(text)]


def run(page: Path, programs: list[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for program in programs:
        exec(compile(program, page, "exec"), names)


def main(name: str, *numbers: str) -> None:
    page = Path(name)
    programs = blocks(page)
    if numbers:
        programs = [programs[int(number)] for number in numbers]
    if any(_ADDRESS in program for program in programs):
        from headrace.testing import EmbeddedBroker

        with EmbeddedBroker() as broker:
            run(page, [program.replace(_ADDRESS, broker.bootstrap_servers) for program in programs])
    else:
        run(page, programs)


if __name__ == "__main__":
    main(*sys.argv[1:])
