"""The reasons of failed connections."""

import errno
import socket
import ssl

import pytest

from headrace.net.errors import describe_os_error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError(errno.ENETUNREACH, "x"), "Network is unreachable"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ConnectionRefusedError("no process listens on port 1"), "no process listens on port 1"),
        (OSError(), "OSError"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION] wrong version number (_ssl.c:1006)"),
            "[SSL: WRONG_VERSION] wrong version number",
        ),
        (ssl.SSLError("No cipher can be selected."), "No cipher can be selected."),
    ],
)
def test_reasons_have_no_numbers(error: OSError, text: str) -> None:
    assert describe_os_error(error) == text
