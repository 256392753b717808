"""Runs members of consumer groups (`group_member`, `java/GroupMember.java`) and keeps what they say.

A member is alone in its process while it lives. A process whose member has left takes another one, of any test: a JVM,
or a client's import, costs more than most of what is tested.
"""

import json
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.apache_kafka.jvm import TOOL_JVM_ARGS, compile_java, start_java

JAVA = "java"
LEAVE_SECONDS = 60.0
END_SECONDS = 5.0
ROOT = Path(__file__).parents[3]
JAVA_SOURCE = Path(__file__).parents[1] / "java" / "GroupMember.java"

Partition = tuple[str, int]


class MemberOptions(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    """Or a pattern, that begins with ^."""
    strategies: list[str]
    instance: str | None
    commit: str
    """`hand` after each poll that found something, `auto`, or `none`."""
    session_ms: int
    poll_interval_ms: int
    poll_ms: int
    """How long one poll waits for records."""


class MemberHost:
    """A process that runs one member after the other."""

    def __init__(self, client: str, classes: Path | None):
        """`classes` has the program of the Java client."""
        self.client = client
        self.member: Member | None = None
        if client == JAVA:
            self._process = start_java(
                JAVA_SOURCE.stem,
                classes=classes,
                jvm_args=[*TOOL_JVM_ARGS, f"-Djava.io.tmpdir={classes}"],
                log_level="ERROR",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        else:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.coordinator.group_member", client],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if self.member is not None:
                self.member.hear(json.loads(line))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def order(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LEAVE_SECONDS)
        self._reader.join(LEAVE_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # it had died, and not read everything
                    stream.close()


class MemberHosts:
    """All processes of members: those that have one, and those that wait for one."""

    def __init__(self) -> None:
        self._all: list[MemberHost] = []
        self._idle: list[MemberHost] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="headrace-java-")
        self._classes: Path | None = None

    def take(self, client: str) -> MemberHost:
        for host in self._idle:
            if host.client == client:
                self._idle.remove(host)
                return host
        if client == JAVA and self._classes is None:
            classes = Path(self._temporary.name)
            compile_java(JAVA_SOURCE, classes)
            self._classes = classes
        host = MemberHost(client, self._classes)
        self._all.append(host)
        return host

    def give_back(self, host: MemberHost) -> None:
        host.member = None
        self._idle.append(host)

    def kill(self, host: MemberHost) -> None:
        self._all.remove(host)
        host.kill()

    def close(self) -> None:
        for host in list(self._all):
            self.kill(host)
        self._temporary.cleanup()


class Member:
    """One member. `assigned` is what it says it has, `received` records in the order that they came, `revoked` what was
    taken away from it, a set for each time."""

    def __init__(self, hosts: MemberHosts, client: str, options: MemberOptions):
        self.client = client
        self.assigned: set[Partition] = set()
        self.revoked: list[set[Partition]] = []
        self.received: list[tuple[str, int, int]] = []
        self.commit_errors: list[str] = []
        self.errors: list[str] = []
        self._left = threading.Event()
        self._paused = threading.Event()
        self._hosts = hosts
        self._host: MemberHost | None = hosts.take(client)
        self._host.member = self
        self._host.order(json.dumps(options._asdict()))

    def __repr__(self) -> str:
        died = "died, " if self._host is not None and not self._host.is_alive else ""
        return f"Member({self.client}, {died}{sorted(self.assigned)}, {len(self.received)} received, {self.errors})"

    def hear(self, said: dict[str, Any]) -> None:
        if "assigned" in said:
            self.assigned = {(topic, partition) for topic, partition in said["assigned"]}
        if said.get("revoked"):  # some say that they lost nothing
            self.revoked.append({(topic, partition) for topic, partition in said["revoked"]})
        self.received += [(topic, partition, offset) for topic, partition, offset in said.get("records", ())]
        if "commit" in said:
            self.commit_errors.append(said["commit"])
        if "error" in said:
            self.errors.append(said["error"])
        if "paused" in said:
            self._paused.set()
        if "left" in said:
            self._left.set()

    def leave(self) -> None:
        """Closes the consumer in order."""
        self.start_leaving()
        assert self._host is not None
        assert self._left.wait(LEAVE_SECONDS), f"{self} did not leave"
        self._hosts.give_back(self._host)
        self._gone()

    def start_leaving(self) -> None:
        if self._host is not None:
            self._host.order("leave")

    def crash(self) -> None:
        """Ends its process (SIGKILL), if it is not gone yet."""
        if self._host is not None:
            self._hosts.kill(self._host)
            self._gone()

    def end(self) -> None:
        """Leaves, if it can do so soon, so that its process can be used again; the test is over."""
        if self._host is not None:
            if self._left.wait(END_SECONDS):
                self._hosts.give_back(self._host)
            else:
                self._hosts.kill(self._host)
            self._gone()

    def _gone(self) -> None:
        self._host = None
        self.assigned = set()

    def pause(self) -> None:
        """Polls no more until `resume`; it goes on to beat, as far as its client does."""
        assert self._host is not None
        self._paused.clear()
        self._host.order("pause")
        assert self._paused.wait(LEAVE_SECONDS), f"{self} goes on to poll"

    def resume(self) -> None:
        assert self._host is not None
        self._host.order("resume")

    def hang(self) -> None:
        """Its process stands still, connections and all, until `wake`."""
        assert self._host is not None
        self._host.signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._host is not None
        self._host.signal(signal.SIGCONT)
