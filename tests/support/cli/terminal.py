"""Runs `headrace` in a pseudo-terminal: reads its output, types keys, sends signals, returns the exit code."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 60.0


class Terminal:
    """`headrace` with these arguments, in a terminal with 200 columns."""

    def __init__(self, *args: object, env: Mapping[str, str] | None = None):
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *map(str, args)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", **(env or {})},
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""

    @property
    def shown(self) -> str:
        """All output so far, without colors and cursor movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def enter(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Sends SIGINT, as Ctrl-C does, or another signal."""
        os.killpg(self._process.pid, number)

    def look(self) -> None:
        """Reads the available output without waiting."""
        self._read(0.0)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} not in {self.shown!r}"
            if not self._read(deadline):
                assert text in self.shown, f"exited without {text!r}: {self.shown!r}"
                return

    def end(self) -> int:
        """Waits until the command exits, and returns its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            assert time.monotonic() < deadline, f"still running: {self.shown!r}"
        return self._process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        """Reads available output. Returns False at the end of the output."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        os.close(self._ours)


def run(*args: object, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `headrace` without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, args)],
        input=stdin.decode(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(env or {})},
        check=False,
    )
