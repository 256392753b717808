"""The header of a request.

    api_key         int16
    api_version     int16
    correlation_id  int32
    client_id       int16 length (-1 is null) and bytes, in every version
    tags            from header version 2 on, which the flexible versions of an API have

A response's header is the correlation id, and tags (header version 1) in flexible versions; but for ApiVersions, whose
response must be readable by who does not know its version yet, never tags.
"""

from typing import NamedTuple


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the request itself begins in the frame."""
