"""The request header.

    api_key         int16
    api_version     int16
    correlation_id  int32
    client_id       int16 length (-1 is null) and bytes, in every version
    tags            since header version 2, which the flexible versions of an API use

A response header is the correlation id and, in flexible versions, tags (header version 1). The ApiVersions response
never has tags, since a client must be able to read it before it knows the version.
"""

from typing import NamedTuple


class RequestHeader(NamedTuple):
    """A decoded request header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """The position of the request's body in the frame."""
