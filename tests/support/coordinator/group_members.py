"""Runs members of consumer groups (`group_member`, `java/GroupMember.java`) and records their output.

A process runs one member at a time. When a member has left, its process is reused, also by other tests: starting a JVM
or importing a client costs more than most tests.
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
    """A topic, or a pattern that starts with ^."""
    strategies: list[str]
    instance: str | None
    commit: str
    """`hand` (after each poll with records), `auto` or `none`."""
    session_ms: int
    poll_interval_ms: int
    poll_ms: int
    """The timeout of one poll."""


class MemberHost:
    """A process that runs one member after another."""

    def __init__(self, client: str, classes: Path | None):
        """`classes` is the class path of the Java program."""
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
                self.member.handle_event(json.loads(line))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send_command(self, text: str) -> None:
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
                with suppress(BrokenPipeError):  # it died before it read all lines
                    stream.close()


class MemberHosts:
    """All member processes, busy and idle."""

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

    def release(self, host: MemberHost) -> None:
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
    """One member. `assigned` is its reported assignment, `received` the records in order, `revoked` the partitions of
    each revocation."""

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
        self._host.send_command(json.dumps(options._asdict()))

    def __repr__(self) -> str:
        died = "died, " if self._host is not None and not self._host.is_alive else ""
        return f"Member({self.client}, {died}{sorted(self.assigned)}, {len(self.received)} received, {self.errors})"

    def handle_event(self, event: dict[str, Any]) -> None:
        if "assigned" in event:
            self.assigned = {(topic, partition) for topic, partition in event["assigned"]}
        if event.get("revoked"):  # some clients report empty revocations
            self.revoked.append({(topic, partition) for topic, partition in event["revoked"]})
        self.received += [(topic, partition, offset) for topic, partition, offset in event.get("records", ())]
        if "commit" in event:
            self.commit_errors.append(event["commit"])
        if "error" in event:
            self.errors.append(event["error"])
        if "paused" in event:
            self._paused.set()
        if "left" in event:
            self._left.set()

    def leave(self) -> None:
        """Closes the consumer cleanly."""
        self.start_leaving()
        assert self._host is not None
        assert self._left.wait(LEAVE_SECONDS), f"{self} did not leave"
        self._hosts.release(self._host)
        self._process_ended()

    def start_leaving(self) -> None:
        if self._host is not None:
            self._host.send_command("leave")

    def crash(self) -> None:
        """Kills the process (SIGKILL) if it still runs."""
        if self._host is not None:
            self._hosts.kill(self._host)
            self._process_ended()

    def end(self) -> None:
        """Leaves at the end of a test, if that is quick, so that its process can be reused."""
        if self._host is not None:
            if self._left.wait(END_SECONDS):
                self._hosts.release(self._host)
            else:
                self._hosts.kill(self._host)
            self._process_ended()

    def _process_ended(self) -> None:
        self._host = None
        self.assigned = set()

    def pause(self) -> None:
        """Stops polling until `resume`. Heartbeats continue, if the client sends them in the background."""
        assert self._host is not None
        self._paused.clear()
        self._host.send_command("pause")
        assert self._paused.wait(LEAVE_SECONDS), f"{self} goes on to poll"

    def resume(self) -> None:
        assert self._host is not None
        self._host.send_command("resume")

    def hang(self) -> None:
        """Stops the process (SIGSTOP) until `wake`; connections stay open."""
        assert self._host is not None
        self._host.signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._host is not None
        self._host.signal(signal.SIGCONT)
