"""Sockets: frames in, replies out, in order.

Exported here is the server's side, on plain TCP; it knows sizes and connections, not what the bytes mean. The client's
side is `broker_pool`, which speaks the protocol as far as connections need it, and TLS; it shares `transport`.
"""

from headrace.net.connection import FrameHandler, ReplySlot, ServerConnection
from headrace.net.limits import Limits
from headrace.net.listeners import BindError, Endpoint, Listener
from headrace.net.server import SocketServer
from headrace.net.transport import FileSlice, Part, Reply

__all__ = [
    "BindError",
    "Endpoint",
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
