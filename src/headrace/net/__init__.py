"""Sockets: frames in, replies out, in order. Knows sizes and connections, not what the bytes mean.

This is the server's side on plain TCP. A client's side and TLS will share `framing` and the shape of `transport`.
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
