"""Runs Python blocks of a page of the documentation as one program, in their order.

    python run_page.py docs/producing.md            all blocks
    python run_page.py README.md 1                  the second

Where they say `localhost:9092`, there is a broker of their own. An error shows the line of the page that it came from.
"""

import re
import sys
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ADDRESS = "localhost:9092"


def blocks(page: Path) -> list[str]:
    """The program of each block, with empty lines before it so that it begins at the same line as on the page."""
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
