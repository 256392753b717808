"""A hook of mkdocs: links from a page to a file outside of docs/ lead to that file in the repository."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\(\.\./([^)]+)\)")


def on_page_markdown(markdown: str, *, config: Any, **_: object) -> str:
    """Rewrites `](../bench/results/x.md)` to the address of the file in the repository."""
    return _OUTSIDE.sub(rf"]({config['repo_url']}/blob/main/\1)", markdown)
