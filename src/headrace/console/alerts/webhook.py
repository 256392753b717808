"""Sends alerts to webhooks: a POST with JSON, with retries. Owner: the console's loop; the requests block in threads.

Messages wait in a queue with a limit, so a webhook that hangs costs neither memory nor the console's time. Redirects
are not followed, and answers are not shown to anybody, because the URL may lead into the console's own network. Logs
and errors name only the host, because the path of a webhook is often its secret.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from headrace.common.errors import ConfigError
from headrace.security.oauth_http import HttpError, fetch

__all__ = ["WebhookError", "WebhookSender", "send_once"]

_logger = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_RETRY_SECONDS = (1.0, 5.0, 25.0)
_MAX_QUEUE = 1000


class WebhookError(Exception):
    """A webhook has not accepted a message."""

    def __init__(self, message: str, retriable: bool):
        super().__init__(message)
        self.retriable = retriable


async def send_once(url: str, message: Mapping[str, Any]) -> None:
    """Sends one message. Raises WebhookError."""
    parts = urlsplit(url)
    try:
        await asyncio.to_thread(
            fetch,
            "webhook",
            url,
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "headrace-console"},
            timeout_seconds=_TIMEOUT_SECONDS,
            max_bytes=_MAX_ANSWER_BYTES,
        )
    except ConfigError as error:
        shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        text = str(error).replace(shown, f"{parts.scheme}://{parts.netloc}")
        raise WebhookError(text, isinstance(error, HttpError) and error.retriable) from None


class WebhookSender:
    """The queue of one cluster."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue(_MAX_QUEUE)
        self._task: asyncio.Task[None] | None = None

    def send(self, url: str, message: Mapping[str, Any]) -> None:
        """Queues a message. Must be called on the loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="webhooks of alerts")
        try:
            self._queue.put_nowait((url, message))
        except asyncio.QueueFull:
            _logger.warning("An alert was not sent: %d others wait for their webhooks", _MAX_QUEUE)

    async def _run(self) -> None:
        while True:
            url, message = await self._queue.get()
            await self._deliver(url, message)

    async def _deliver(self, url: str, message: Mapping[str, Any]) -> None:
        for wait in (*_RETRY_SECONDS, None):
            try:
                await send_once(url, message)
                return
            except WebhookError as error:
                if wait is None or not error.retriable:
                    _logger.warning("Alert %s of %s was not sent: %s", message["rule"], message["target"], error)
                    return
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Drops what is queued."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
