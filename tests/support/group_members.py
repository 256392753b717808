"""Runs members of consumer groups (`group_member`) and keeps what they say."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

LEAVE_SECONDS = 30.0
ROOT = Path(__file__).parents[2]


class MemberProcess:
    """One member. `assigned` is what it says it has, `received` partitions and offsets in the order that they came."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        strategy: str | None = None,
        instance: str | None = None,
        commit: str = "hand",
    ):
        self.client = client
        self.assigned: set[int] = set()
        self.received: list[tuple[int, int]] = []
        self.commit_errors: list[str] = []
        self.has_left = False
        options = {"strategy": strategy, "instance": instance, "commit": commit}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.group_member",
                client,
                bootstrap,
                group,
                topic,
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"MemberProcess({self.client}, {sorted(self.assigned)}, {len(self.received)} received)"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "assigned" in said:
                self.assigned = {partition for _, partition in said["assigned"]}
            self.received += [(partition, offset) for partition, offset in said.get("records", ())]
            if "commit" in said:
                self.commit_errors.append(said["commit"])
            self.has_left = self.has_left or "left" in said

    def leave(self) -> None:
        """Closes the consumer in order."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(LEAVE_SECONDS)
        self._end()

    def crash(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LEAVE_SECONDS)
        self._end()

    def hang(self) -> None:
        """Stands still, connections and all, until `wake`."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        self._reader.join(LEAVE_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self.assigned = set()


class Members:
    """The members of one group; all are gone at the end."""

    def __init__(self, bootstrap: str, group: str, topic: str):
        self.group = group
        self._where = (bootstrap, group, topic)
        self._all: list[MemberProcess] = []

    def __enter__(self) -> "Members":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._all:
            member.crash()

    def add(self, client: str, **options: Any) -> MemberProcess:
        member = MemberProcess(client, *self._where, **options)
        self._all.append(member)
        return member

    def share(self, partitions: int) -> bool:
        """Whether each partition is somebody's, and nobody else's."""
        owned = sorted(partition for member in self._all for partition in member.assigned)
        return owned == list(range(partitions))

    def received(self) -> set[tuple[int, int]]:
        return {each for member in self._all for each in member.received}
