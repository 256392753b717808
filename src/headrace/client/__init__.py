"""The client library: producer, consumer, admin, and what they share.

Asyncio inside. Everything that does I/O belongs to one event loop: the user's own for `headrace.aio`, that of a daemon
thread for the blocking classes. What other threads may touch says so in its module.
"""
