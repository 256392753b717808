"""What security costs: TLS and SCRAM next to plaintext, ACL checks and quotas for each request. Next to Apache Kafka.

In each round each side starts on an empty directory, alone on the machine, with the listeners

    PLAINTEXT   administration, and the comparison
    SSL         TLS 1.3 with an elliptic-curve certificate
    SASL_SSL    the same, and SCRAM-SHA-256
    SASL        PLAIN, for requests whose principal has ACLs and quotas

- Throughput and CPU time: librdkafka, as in the benchmark `processes`.
- Connections: a client opens a connection, completes its handshakes, asks for ApiVersions and closes it, without
  session resumption. It shares the cores, so compare the CPU time of the broker, too.
- ACLs and quotas: librdkafka sends each record in a request of its own. The costs of a check are differences between
  two such measurements, small ones, so they are notes and not comparisons.

    python -m bench security [--rounds 3] [--quick]
"""

import os
import shutil
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.support.apache_kafka.broker import KafkaBroker
from tests.support.broker.process import free_port
from tests.support.net.wire_client import WireClient

from bench.broker import BATCHES, Goal, Results
from bench.broker_load import PARTITIONS, RECORD_BYTES, Librdkafka, Load, build
from bench.broker_sides import KAFKA_JVM_ARGS, KAFKA_PROPERTIES, TICKS_PER_SECOND, Headrace, Kafka, Side
from bench.broker_wire import HOST, make_topic
from bench.cluster_sides import settle
from bench.harness import Measurement, describe
from headrace.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.credentials import SCRAM_MECHANISMS
from headrace.security.scram import ScramClient, ScramKeyCache
from headrace.testing.certificates import LOCAL_HOSTS, CertificateAuthority

ROUNDS = 3
USER, PASSWORD = "alice", "alice-secret"
SCRAM = "SCRAM-SHA-256"
TOPIC = "load"
ACLS = 1000
"""ACLs of other topics, besides those of the user."""
QUOTAS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
"""Far above what the generator uses, so that they only cost time."""
CLIENTS = 2
SPEED = Goal("MB/s", 1.0, lower_is_better=False)
CPU = Goal("CPU-s/GB", 1.0)
RATE = Goal("connections/s", 1.0, lower_is_better=False)
CONNECTION_CPU = Goal("CPU-ms", 1.0)
REQUEST_CPU = Goal("CPU-us/request", 1.0)
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Sizes:
    """The work of each case."""

    megabytes: int = 800
    warmup: int = 1000
    """A JVM mostly runs interpreted code until then."""
    connections: int = 2000
    requests: int = 40_000
    settle_seconds: float = 2.0


QUICK = Sizes(megabytes=80, warmup=0, connections=200, requests=5_000, settle_seconds=0.5)


# ---- the sides


def security_properties(directory: Path, ports: Mapping[str, int], more: Mapping[str, object]) -> dict[str, object]:
    """Writes certificates into a directory. Returns the configs that both kinds of brokers have in common."""
    ca = CertificateAuthority()
    keystore = ca.issue("broker", hosts=LOCAL_HOSTS).write_keystore(directory / "broker.pem")
    truststore = ca.write_truststore(directory / "ca.pem")
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": truststore,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": SCRAM,
        f"listener.name.sasl_ssl.{SCRAM.lower()}.sasl.jaas.config": f"{_SCRAM_LOGIN};",
        "listener.name.sasl.plain.sasl.jaas.config": f'{_PLAIN_LOGIN} user_{USER}="{PASSWORD}";',
        **more,
    }


class SecureHeadrace(Headrace):
    """Headrace with all listeners."""

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        super().__init__(directory, properties)
        self.ports = {name: free_port() for name in PROTOCOLS}
        self.port = self.ports["PLAINTEXT"]
        self._properties = security_properties(directory, self.ports, self._properties)


class SecureKafka(Kafka):
    """Apache Kafka with all listeners."""

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "kafka-data"
        self.ports = {name: free_port() for name in PROTOCOLS}
        self.port = self.ports["PLAINTEXT"]
        controller = free_port()
        own = security_properties(directory, self.ports, properties or {})
        own["advertised.listeners"] = own["listeners"]
        own["listeners"] = f"{own['listeners']},CONTROLLER://{HOST}:{controller}"
        own["listener.security.protocol.map"] = f"{own['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
        if "authorizer.class.name" in own:
            own["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        self._broker = KafkaBroker(self.data_dir, {**KAFKA_PROPERTIES, **own}, jvm_args=KAFKA_JVM_ARGS)
        self._config = self._broker.prepare(self.port, controller)


SecureSide = SecureHeadrace | SecureKafka
KINDS: tuple[type[SecureSide], type[SecureSide]] = (SecureHeadrace, SecureKafka)


def client_properties(listener: str, ca: Path) -> dict[str, object]:
    """Returns librdkafka's configs for a listener."""
    properties: dict[str, object] = {"security.protocol": PROTOCOLS[listener]}
    if listener in ("SSL", "SASL_SSL"):
        properties["ssl.ca.location"] = ca
    if listener.startswith("SASL"):
        mechanism = SCRAM if listener == "SASL_SSL" else "PLAIN"
        properties |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return properties


# ---- connections

_KEYS = ScramKeyCache()
"""As in real clients: the key of a password is computed once."""


def open_connections(side: SecureSide, listener: str, count: int, ca: Path) -> float:
    """Opens and closes connections, a few at a time. Returns the seconds."""
    context = ssl.create_default_context(cafile=str(ca)) if "SSL" in listener else None
    each = count // CLIENTS

    def work(_: int) -> None:
        for _ in range(each):
            _connect(side.ports[listener], context, uses_scram=listener == "SASL_SSL")

    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(work, range(CLIENTS)))
    return time.perf_counter() - started


def _connect(port: int, context: ssl.SSLContext | None, *, uses_scram: bool) -> None:
    with closing(WireClient((HOST, port), timeout=60)) as wire:
        if context is not None:
            wire.sock = context.wrap_socket(wire.sock, server_hostname="localhost")
        wire.call(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
        if uses_scram:
            wire.call(SaslHandshakeRequest(mechanism=SCRAM), 1)
            client = ScramClient(SCRAM_MECHANISMS[SCRAM], USER, PASSWORD, keys=_KEYS)
            message = client.initial_response()
            while not client.complete:
                message = client.respond(wire.call(SaslAuthenticateRequest(auth_bytes=message), 2).auth_bytes)


# ---- the benchmark


@dataclass
class _Measured:
    """The values of one side in one round, by case, with their goals."""

    values: dict[str, tuple[Goal, float]] = field(default_factory=dict)

    def add(self, name: str, goal: Goal, value: float) -> None:
        self.values[name] = goal, value


@dataclass
class Bench:
    """The sides, and the rounds."""

    directory: Path
    kinds: tuple[type[SecureSide], type[SecureSide]]
    sizes: Sizes
    program: Path
    rounds: list[list[_Measured]] = field(default_factory=list)

    def round(self, number: int) -> None:
        found = [_Measured() for _ in self.kinds]
        for turn in range(len(self.kinds)):
            place = (number + turn) % len(self.kinds)
            self._with_side(place, number, {}, lambda side, place=place: self._measure(side, found[place]))
            authorizer = {"authorizer.class.name": "headrace", "super.users": "User:ANONYMOUS"}
            self._with_side(place, number, authorizer, lambda side, place=place: self._measure_acls(side, found[place]))
        self.rounds.append(found)

    def _with_side(
        self, place: int, number: int, properties: Mapping[str, object], measure: Callable[[SecureSide], None]
    ) -> None:
        directory = self.directory / f"side-{number}-{place}"
        directory.mkdir(parents=True)
        side = self.kinds[place](directory, properties)
        try:
            side.start()
            measure(side)
        finally:
            side.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def _generator(self, side: SecureSide, listener: str) -> Librdkafka:
        return Librdkafka(self.program, client_properties(listener, side.data_dir.parent / "ca.pem"))

    def _measure(self, side: SecureSide, found: _Measured) -> None:
        with Admin(bootstrap_servers=side.bootstrap) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, SCRAM, PASSWORD)])
            for listener in ("PLAINTEXT", "SSL", "SASL_SSL"):
                self._measure_throughput(side, listener, found)
            for listener in ("PLAINTEXT", "SSL", "SASL_SSL"):
                self._measure_connections(side, listener, found)
            self._measure_requests(side, "requests", found)
            admin.alter_client_quotas([ClientQuotaAlteration(ClientQuotaEntity({"user": USER}), QUOTAS)])
            self._measure_requests(side, "requests with quotas", found)

    def _measure_acls(self, side: SecureSide, found: _Measured) -> None:
        with Admin(bootstrap_servers=side.bootstrap) as admin:
            acls = [_acl(f"other-{number}", f"User:user-{number % 100}") for number in range(ACLS)]
            admin.create_acls([*acls, _acl("requests-with-acls", f"User:{USER}")])
        self._measure_requests(side, "requests with ACLs", found)

    def _measure_throughput(self, side: SecureSide, listener: str, found: _Measured) -> None:
        generator = self._generator(side, listener)
        topic = f"{TOPIC}-{listener.lower()}"
        bootstrap = f"{HOST}:{side.ports[listener]}"
        batch_bytes = BATCHES["16 KB"]
        if self.sizes.warmup:
            make_topic(side.port, f"warmup-{listener.lower()}", PARTITIONS)
            generator.produce(bootstrap, f"warmup-{listener.lower()}", self.sizes.warmup, batch_bytes, "1")
        make_topic(side.port, topic, PARTITIONS)
        self._case(
            f"{listener}: produce, 16 KB batches",
            side,
            found,
            lambda: generator.produce(bootstrap, topic, self.sizes.megabytes, batch_bytes, "1"),
        )
        self._case(
            f"{listener}: consume", side, found, lambda: generator.consume(bootstrap, topic, self.sizes.megabytes)
        )

    def _case(self, name: str, side: Side, found: _Measured, load: Callable[[], Load]) -> None:
        settle(self.sizes.settle_seconds)
        before = side.cpu_seconds()
        done = load()
        cpu = max(side.cpu_seconds() - before, 1 / TICKS_PER_SECOND)
        found.add(name, SPEED, done.mb_per_second)
        found.add(f"{name}: CPU of the broker", CPU, cpu / done.total_bytes * 1e9)
        print(f"  {name:<40} {side.name:<24} {done.mb_per_second:>9.2f} MB/s", file=sys.stderr, flush=True)

    def _measure_connections(self, side: SecureSide, listener: str, found: _Measured) -> None:
        ca = side.data_dir.parent / "ca.pem"
        open_connections(side, listener, max(CLIENTS, self.sizes.connections // 10), ca)
        settle(self.sizes.settle_seconds)
        before = side.cpu_seconds()
        seconds = open_connections(side, listener, self.sizes.connections, ca)
        cpu = max(side.cpu_seconds() - before, 1 / TICKS_PER_SECOND)
        rate = self.sizes.connections / seconds
        found.add(f"{listener}: new connections", RATE, rate)
        found.add(f"{listener}: CPU of a new connection", CONNECTION_CPU, cpu / self.sizes.connections * 1e3)
        print(f"  {listener}: new connections {side.name:<24} {rate:>9.1f}/s", file=sys.stderr, flush=True)

    def _measure_requests(self, side: SecureSide, name: str, found: _Measured) -> None:
        topic = name.replace(" ", "-").lower()
        make_topic(side.port, topic, PARTITIONS)
        generator = self._generator(side, "SASL")
        bootstrap = f"{HOST}:{side.ports['SASL']}"
        generator.produce_unbatched(bootstrap, topic, max(1, self.sizes.requests // 5))
        settle(self.sizes.settle_seconds)
        before = side.cpu_seconds()
        generator.produce_unbatched(bootstrap, topic, self.sizes.requests)
        cpu = max(side.cpu_seconds() - before, 1 / TICKS_PER_SECOND)
        found.add(f"Produce {name}: CPU of the broker", REQUEST_CPU, cpu / (1.1 * self.sizes.requests) * 1e6)

    def measurements(self) -> list[Measurement]:
        results = Results()
        for ours, theirs in self.rounds:
            for name, (goal, value) in ours.values.items():
                results.add(name, goal, value, theirs.values[name][1])
        return results.measurements(self.kinds[1].name)

    def notes(self) -> list[str]:
        """Returns the costs of TLS, ACLs and quotas as differences."""
        lines = []
        for place, kind in enumerate(self.kinds):

            def value(name: str, place: int = place) -> float:
                return median(sides[place].values[name][1] for sides in self.rounds)

            plain, quotas, acls = (
                value(f"Produce requests{more}: CPU of the broker") for more in ("", " with quotas", " with ACLs")
            )
            tls = [
                value(f"SSL: {case}: CPU of the broker") - value(f"PLAINTEXT: {case}: CPU of the broker")
                for case in ("produce, 16 KB batches", "consume")
            ]
            lines.append(
                f"{kind.name}: TLS costs {tls[0]:.2f} CPU-s per GB produced and {tls[1]:.2f} per GB consumed; quotas "
                f"cost {quotas - plain:.1f} CPU-us per request, ACLs {acls - plain:.1f} (with {ACLS} other ACLs)."
            )
        return lines


def _acl(topic: str, principal: str) -> ACL:
    return ACL(principal, "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, topic))


def run(
    directory: Path,
    rounds: int,
    *,
    sizes: Sizes,
    kinds: tuple[type[SecureSide], type[SecureSide]] = KINDS,
) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark. Returns the measurements and notes."""
    bench = Bench(directory, kinds, sizes, build(directory))
    load = os.getloadavg()
    for number in range(rounds):
        print(f"security, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        bench.round(number)
    measurements = bench.measurements()
    for each in measurements:
        print(describe(each), file=sys.stderr, flush=True)
    notes = [
        f"Records of {RECORD_BYTES} bytes, {PARTITIONS} partitions with one replica, acks=1; {sizes.megabytes} MB per "
        f"case, {sizes.connections} connections, {sizes.requests} requests. All processes share the cores.",
        f"Load averages before the run: {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f}.",
        *bench.notes(),
    ]
    return measurements, notes
