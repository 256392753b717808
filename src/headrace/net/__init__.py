"""Sockets of server and client: frames in, responses out, in order.

- Server: exported by this package, plain TCP. It handles sizes and connections, but not the content of frames.
- Client: `broker_pool`, TCP and TLS. It uses the protocol as far as connections need it.

Both share `transport`.

Names are imported on first use, so a client does not load the server.
"""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

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

_MODULES = {
    "BindError": "headrace.net.listeners",
    "BoundListener": "headrace.net.listeners",
    "FileSlice": "headrace.net.transport",
    "FrameHandler": "headrace.net.connection",
    "Limits": "headrace.net.limits",
    "Listener": "headrace.net.listeners",
    "Part": "headrace.net.transport",
    "Frame": "headrace.net.transport",
    "ResponseSlot": "headrace.net.connection",
    "ServerConnection": "headrace.net.connection",
    "SocketServer": "headrace.net.server",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
