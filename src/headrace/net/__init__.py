"""Sockets: frames in, replies out, in order.

Exported here is the server's side, on plain TCP; it knows sizes and connections, not what the bytes mean. The client's
side is `broker_pool`, which speaks the protocol as far as connections need it, and TLS; it shares `transport`.

Names are imported when they are first used: a client has no server in its memory.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.net.connection import FrameHandler, ReplySlot, ServerConnection
    from headrace.net.limits import Limits
    from headrace.net.listeners import BindError, BoundListener, Listener
    from headrace.net.server import SocketServer
    from headrace.net.transport import FileSlice, Part, Reply

__all__ = [
    "BindError",
    "BoundListener",
    "FileSlice",
    "FrameHandler",
    "Limits",
    "Listener",
    "Part",
    "Reply",
    "ReplySlot",
    "ServerConnection",
    "SocketServer",
]

_HOMES = {
    "BindError": "listeners",
    "BoundListener": "listeners",
    "FileSlice": "transport",
    "FrameHandler": "connection",
    "Limits": "limits",
    "Listener": "listeners",
    "Part": "transport",
    "Reply": "transport",
    "ReplySlot": "connection",
    "ServerConnection": "connection",
    "SocketServer": "server",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
