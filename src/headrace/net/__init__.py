"""Sockets of server and client: frames in, responses out, in order.

This package exports the server's side, on plain TCP, which deals with sizes and connections but not with the content of
frames. The client's side is `broker_pool`: it speaks the protocol as far as connections need it, supports TLS and
shares `transport`.

Names are imported on first use, so a client does not load the server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.net.connection import FrameHandler, ResponseSlot, ServerConnection
    from headrace.net.limits import Limits
    from headrace.net.listeners import BindError, BoundListener, Listener
    from headrace.net.server import SocketServer
    from headrace.net.transport import FileSlice, Frame, Part

__all__ = [
    "BindError",
    "BoundListener",
    "FileSlice",
    "Frame",
    "FrameHandler",
    "Limits",
    "Listener",
    "Part",
    "ResponseSlot",
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
    "Frame": "transport",
    "ResponseSlot": "connection",
    "ServerConnection": "connection",
    "SocketServer": "server",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
