"""Machines as network namespaces on one bridge. Needs root and iproute2.

    with Network() as network:
        address = network.add("b1")
        with network.inside("b1"):
            process = subprocess.Popen(...)     # lives in the namespace
        network.cut("b1", "zk")                 # packets from b1 to zk are lost, silently

Programs outside of the namespaces reach all machines through the bridge's own address. A cut is a wrong MAC address for
the other machine in the sender's neighbour table: packets leave and nobody takes them, as with a real partition.
A slow link uses netem where the kernel has it, and else a token bucket with a long queue.
"""

import ctypes
import fcntl
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.apache_kafka.jvm import apt_lock

_CLONE_NEWNET = 0x40000000
_NOBODY = "02:00:00:00:de:ad"
_LINK = "eth0"
NETEM = ("netem", "delay", "150ms", "50ms", "loss", "1%")
TOKEN_BUCKET = ("tbf", "rate", "256kbit", "burst", "4kb", "latency", "2s")


class NetworkUnavailable(Exception):
    """Namespaces cannot be used here; the message says why."""


def require_iproute2() -> None:
    if os.geteuid() != 0:
        raise NetworkUnavailable("network namespaces need root")
    if shutil.which("ip") and shutil.which("tc"):
        return
    if not shutil.which("apt-get"):
        raise NetworkUnavailable("iproute2 (the commands ip and tc) is not installed")
    with apt_lock():
        for command in (["apt-get", "-q", "update"], ["apt-get", "-qy", "install", "iproute2"]):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
    if not shutil.which("ip"):
        raise NetworkUnavailable("iproute2 is not installed and apt-get could not install it")


def run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """A bridge with a free network 10.x.y.0/24. The first address is that of this side."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._slow: set[str] = set()
        self._lock: IO[bytes] | None = None
        self._name = self._prefix = ""
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self) -> Self:
        require_iproute2()
        self._reserve()
        try:
            run("ip", "link", "add", self._name, "type", "bridge")
            run("ip", "address", "add", f"{self._prefix}.1/24", "dev", self._name)
            run("ip", "link", "set", self._name, "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reserve(self) -> None:
        """Takes a number that no other run on this machine uses, for as long as this process lives."""
        for number in random.sample(range(1, 250), 249):
            lock = (Path(tempfile.gettempdir()) / f"headrace-jepsen-{number}.lock").open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._lock, self._name, self._prefix = lock, f"hrj{number}", f"10.213.{number}"
            self._remove_all()  # of a run that was killed
            return
        raise NetworkUnavailable("all networks are in use")

    def close(self) -> None:
        self._remove_all()
        if self._lock is not None:
            self._lock.close()

    def _remove_all(self) -> None:
        with suppress(NetworkUnavailable):
            for line in run("ip", "netns", "list").splitlines():
                namespace = line.split()[0]
                if namespace.startswith(f"{self._name}-"):
                    run("ip", "netns", "delete", namespace)
        with suppress(NetworkUnavailable):
            run("ip", "link", "delete", self._name)

    def add(self, machine: str) -> str:
        """Adds a machine, and returns its address."""
        address = f"{self._prefix}.{len(self.addresses) + 2}"
        namespace, cable = self._namespace(machine), f"{self._name}-{machine}"
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", _LINK, "netns", namespace)
        run("ip", "link", "set", cable, "master", self._name, "up")
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", _LINK)
        run("ip", "-n", namespace, "link", "set", _LINK, "up")
        self.addresses[machine] = address
        return address

    def _namespace(self, machine: str) -> str:
        return f"{self._name}-{machine}"

    @contextmanager
    def inside(self, machine: str) -> Iterator[None]:
        """This thread is in the machine's namespace, and so are the processes that it starts."""
        with (
            Path(f"/run/netns/{self._namespace(machine)}").open("rb") as there,
            Path("/proc/thread-self/ns/net").open("rb") as here,
        ):
            self._enter(there)
            try:
                yield
            finally:
                self._enter(here)

    def _enter(self, namespace: IO[bytes]) -> None:
        if self._libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise NetworkUnavailable(f"setns: {os.strerror(ctypes.get_errno())}")

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        """Loses all packets from one machine to another."""
        neighbour = ("lladdr", _NOBODY, "dev", _LINK, "nud", "permanent")
        run("ip", "-n", self._namespace(source), "neigh", "replace", self.addresses[target], *neighbour)

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def slow_down(self, machine: str) -> None:
        """Delays what a machine sends."""
        place = ("tc", "-n", self._namespace(machine), "qdisc", "replace", "dev", _LINK, "root")
        try:
            run(*place, *NETEM)
        except NetworkUnavailable:
            run(*place, *TOKEN_BUCKET)
        self._slow.add(machine)

    def heal(self) -> None:
        """Ends all cuts and slow links."""
        for machine in self.addresses:
            run("ip", "-n", self._namespace(machine), "neigh", "flush", "nud", "permanent", "dev", _LINK)
        for machine in self._slow:
            run("tc", "-n", self._namespace(machine), "qdisc", "delete", "dev", _LINK, "root")
        self._slow.clear()
