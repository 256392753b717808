"""The asyncio clients: `Producer`, `Consumer` and `Admin`. Each belongs to the event loop that it is started on."""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.aio.admin import Admin
    from headrace.aio.consumer import Consumer
    from headrace.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_MODULES = {
    "Admin": "headrace.aio.admin",
    "Consumer": "headrace.aio.consumer",
    "Producer": "headrace.aio.producer",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
