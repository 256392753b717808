"""Shell completion of topic and group names: asks the broker that the command line names.

A completion must be quick and silent: without a broker, or after a second, it offers nothing.
"""

from collections.abc import Callable, Iterable

import click

_DEFAULT_SERVER = "localhost:9092"
_TIMEOUT_MS = 1000


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the topics whose names start with the text. Internal topics only if it starts with an underscore."""
    return _complete(ctx, incomplete, lambda admin: admin.list_topics(timeout_ms=_TIMEOUT_MS))


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the consumer groups whose names start with the text."""
    return _complete(
        ctx, incomplete, lambda admin: [group.group_id for group in admin.list_groups(timeout_ms=_TIMEOUT_MS)]
    )


def _complete(ctx: click.Context, incomplete: str, names_of: "Callable[..., Iterable[str]]") -> list[str]:
    from headrace.cli.common.connection import Connection

    server = ctx.params.get("bootstrap_server") or _DEFAULT_SERVER
    try:
        with Connection(server).admin(_TIMEOUT_MS) as admin:
            names = sorted(names_of(admin))
    except Exception:  # noqa: BLE001 - an error message would disturb the command line that the user types
        return []
    return [name for name in names if name.startswith(incomplete) and (incomplete or not name.startswith("__"))]
