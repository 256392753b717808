"""The asyncio clients: `Producer`, `Consumer` and `Admin`. Each belongs to the event loop that it is started on."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.aio.admin import Admin
    from headrace.aio.consumer import Consumer
    from headrace.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOMES = {
    "Admin": "headrace.aio.admin",
    "Consumer": "headrace.aio.consumer",
    "Producer": "headrace.aio.producer",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
