"""The client library: producer, consumer, admin client, and the parts that they share.

The clients are built on asyncio. Everything that does I/O belongs to one event loop: the application's loop for
`headrace.aio`, the loop of a daemon thread for the blocking clients. Modules state which of their parts other threads
may use.
"""
