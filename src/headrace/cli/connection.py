"""The way from a tool to a cluster: the flags that all tools share, and clients made from them.

A tool should not let a person wait for the half minute that a client may need to give up. So the first contact has to
succeed within two seconds; after that the client's own patience holds.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.client_settings import settings_for, understood
from headrace.cli.tool import Failure, sentence
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.producer.producer import Producer

F = TypeVar("F", bound=Callable[..., Any])
_CONNECT_SECONDS = 0.9
_ANSWER_MS = 1000
_LAST_SECONDS = 3.0


@dataclass(frozen=True)
class Connection:
    """Where the cluster is, and what the user's file says about the way to it."""

    servers: str
    properties: dict[str, str] = field(default_factory=dict)

    def settings(
        self, kind: str, given: Mapping[str, str] | None = None, own: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Settings of an `admin`, a `producer` or a `consumer`, by Kafka's dotted names: the tool's *own*, over them
        those of the user's file, and over them those *given* on the command line."""
        users = {**self.properties, **(given or {})}
        chosen = settings_for(kind, users) if users else {}
        return {"client.id": "headrace-cli", **(own or {}), **chosen, "bootstrap.servers": self.servers}

    @contextmanager
    def admin(self, timeout_ms: int | None = None) -> "Iterator[Admin]":
        """An admin client that has reached a broker. Its calls have so much time."""
        self.check_port()
        from headrace.client.admin.admin import Admin
        from headrace.client.errors import KafkaTimeoutError

        settings = self.settings("admin")
        if timeout_ms is not None:
            settings["default.api.timeout.ms"] = timeout_ms
        with Admin(settings) as admin:
            try:
                admin.describe_cluster(timeout_ms=_ANSWER_MS)
            except KafkaTimeoutError as error:
                raise Failure(f"{self.servers} does not answer: {sentence(error)}") from error
            yield admin

    def check(self) -> None:
        """Raises a Failure unless a broker answers."""
        with self.admin():
            pass

    def check_port(self) -> None:
        """Raises a Failure if nobody listens at any of the addresses."""
        addresses = [self._address(each) for each in self.servers.split(",") if each.strip()]
        if not addresses:
            raise click.UsageError("--bootstrap-server is missing; expected HOST:PORT[,HOST:PORT...]")
        reasons = []
        for host, port in addresses:
            try:
                socket.create_connection((host, port), _CONNECT_SECONDS / len(addresses)).close()
                return
            except OSError as error:
                reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
                reasons.append(f"{host}:{port}: {reason}")
        raise Failure(f"no broker can be reached ({'; '.join(reasons)})")

    @staticmethod
    def _address(text: str) -> tuple[str, int]:
        host, colon, port = text.strip().rpartition(":")
        if "://" in host:
            host = host.partition("://")[2]
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise click.UsageError(f"--bootstrap-server {text.strip()!r}: expected HOST:PORT, such as localhost:9092")
        return host.strip("[]"), int(port)


@contextmanager
def producer(settings: dict[str, object]) -> "Iterator[Producer]":
    """A producer that sends what it has at the end, and after Ctrl-C does not wait long for brokers that are gone."""
    from headrace.client.producer.producer import Producer

    made = Producer(settings)
    try:
        yield made
    except KeyboardInterrupt:
        made.close(_LAST_SECONDS)
        raise
    finally:
        made.close()


def read_config(_: click.Context, param: click.Parameter, path: str | None) -> dict[str, str]:
    """A property file of the command line; for use as a click callback."""
    if path is None:
        return {}
    if not Path(path).is_file():
        raise click.BadParameter(f"there is no file {path!r}", param=param)
    return read_properties(path)


def read_client_config(ctx: click.Context, param: click.Parameter, path: str | None) -> dict[str, str]:
    """A property file with settings of clients; for use as a click callback."""
    return understood(read_config(ctx, param, path))


def client_key_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Settings of a client as `KEY=VALUE`, any number of times; for use as a click callback."""
    return understood(key_values(ctx, param, given))


def key_values(_: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`KEY=VALUE`, any number of times; for use as a click callback."""
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{each!r}: expected KEY=VALUE", param=param)
        found[key.strip()] = value
    return found


def connects(function: F) -> F:
    """Gives a command `--bootstrap-server` and `--command-config`, and itself a `connection` made from them."""
    return _connects(function, required=True)


def connects_if_asked(function: F) -> F:
    """As `connects`, for a tool that has something to say without a cluster."""
    return _connects(function, required=False)


def _connects(function: F, required: bool) -> F:
    def command(*args: Any, bootstrap_server: str | None, command_config: dict[str, str], **options: Any) -> Any:
        return function(*args, connection=Connection(bootstrap_server or "", command_config), **options)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    text = "A property file with settings of the client: timeouts, TLS."
    command = click.option("--command-config", metavar="FILE", callback=read_client_config, help=text)(command)
    text = "Brokers to connect to first."
    decorate = click.option("--bootstrap-server", metavar="HOST:PORT[,...]", required=required, help=text)
    return decorate(command)  # type: ignore[return-value]


def client_settings(kind: str) -> Callable[[F], F]:
    """Gives a command the flags that set a producer's or a consumer's settings, and itself them as `client`."""

    def decorate(function: F) -> F:
        def command(
            *args: Any, client_config: dict[str, str], client_properties: dict[str, str], **options: Any
        ) -> Any:
            return function(*args, client={**client_config, **client_properties}, **options)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        for option in (
            click.option(
                f"--{kind}.config",
                "client_config",
                metavar="FILE",
                callback=read_client_config,
                help="Older name of --command-config.",
            ),
            click.option(
                "--command-property",
                f"--{kind}-property",
                "client_properties",
                metavar="KEY=VALUE",
                multiple=True,
                callback=client_key_values,
                help=f"A setting of the {kind}.",
            ),
        ):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate
