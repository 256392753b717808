"""Connections to a cluster: the options that all tools share, and clients created from them.

A client may need half a minute to report that no broker is reachable. A tool uses shorter timeouts for the first
contact:

- one second, if no broker accepts connections;
- five seconds, if a broker accepts connections but does not respond, because it may be busy.

After the first contact, the client's own timeouts apply. A tool contacts several bootstrap servers in parallel. Its
clients then use the first server that responds.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.common.client_config import configs_for, known_configs
from headrace.cli.common.tool import Failure, sentence
from headrace.common.errors import ConfigError
from headrace.common.properties import read_properties

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.producer.producer import Producer

F = TypeVar("F", bound=Callable[..., Any])
_CONNECT_SECONDS = 0.9
_RESPONSE_MS = 5000
_HEAD_START_SECONDS = 0.3
_CLOSE_MS = 3000
_MAX_REQUEST = 1 << 20
_TIMEOUT_KEYS = ("default.api.timeout.ms", "request.timeout.ms")


class _Unreachable(Failure):
    """No broker accepts connections."""

    def __init__(self, reasons: list[str]):
        super().__init__(f"No broker is reachable ({'; '.join(reasons)})")
        self.reasons = reasons


@dataclass(frozen=True)
class Connection:
    """The bootstrap servers and the client configs of the user's property file."""

    servers: str
    properties: dict[str, str] = field(default_factory=dict)
    _responded: list[str] = field(default_factory=list)

    def client_config(
        self, kind: str, overrides: Mapping[str, str] | None = None, defaults: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Returns the configs of an `admin`, a `producer` or a `consumer`, by Kafka's dotted names.

        The user's file overrides the tool's *defaults*, and the command line (*overrides*) overrides both. If one
        bootstrap server has already responded, the client connects to that server.
        """
        properties = {**self.properties, **(overrides or {})}
        user_configs = configs_for(kind, properties) if properties else {}
        servers = self._responded[0] if self._responded else self.servers
        return {"client.id": "headrace-cli", **(defaults or {}), **user_configs, "bootstrap.servers": servers}

    @contextmanager
    def admin(self, timeout_ms: int | None = None) -> "Iterator[Admin]":
        """Yields an admin client that has reached a broker. `timeout_ms` limits each of its calls."""
        config = self.client_config("admin")
        if timeout_ms is not None:
            config["default.api.timeout.ms"] = timeout_ms
        servers = self._responded or self._servers()
        with self._reach(servers[0], config) if len(servers) == 1 else self._reach_any(servers, config) as admin:
            yield admin

    def _reach(self, server: str, config: dict[str, object]) -> "Admin":
        """Returns a client of the server. Raises a Failure if the server does not respond."""
        host, port = self._address(server)
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as error:
            reason = "no response" if isinstance(error, TimeoutError) else (error.strerror or str(error))
            raise _Unreachable([f"{host}:{port}: {reason}"]) from None
        from headrace.client.admin.admin import Admin
        from headrace.client.errors import KafkaTimeoutError

        admin = Admin({**config, "bootstrap.servers": server})
        try:
            admin.describe_cluster(timeout_ms=self._first_timeout_ms())
        except BaseException as error:
            admin.close()
            if isinstance(error, KafkaTimeoutError):
                raise Failure(f"Server {server} does not respond: {sentence(error)}") from error
            raise
        return admin

    def _reach_any(self, servers: list[str], config: dict[str, object]) -> "Admin":
        """Returns a client of the first server that responds, and remembers that server.

        Contacts each server shortly after the previous one, or as soon as the previous one has failed. Each server has
        the full timeout.
        """
        import queue
        import threading

        results: queue.SimpleQueue[Admin | Exception] = queue.SimpleQueue()
        lock = threading.Lock()

        def contact(server: str) -> None:
            try:
                admin = self._reach(server, config)
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                results.put(error)
                return
            with lock:
                is_first = not self._responded
                if is_first:
                    self._responded.append(server)
            if is_first:
                results.put(admin)
            else:
                admin.close()

        errors: list[Exception] = []
        waiting = servers[::-1]
        while len(errors) < len(servers):
            if waiting:
                threading.Thread(target=contact, args=(waiting.pop(),), daemon=True).start()
            try:
                result = results.get(timeout=_HEAD_START_SECONDS / len(servers) if waiting else None)
            except queue.Empty:
                continue
            if not isinstance(result, Exception):
                return result
            errors.append(result)
        for error in errors:
            if not isinstance(error, Failure):
                raise error
        closed = [reason for error in errors if isinstance(error, _Unreachable) for reason in error.reasons]
        silent = [
            error.message for error in errors if not isinstance(error, _Unreachable) and isinstance(error, Failure)
        ]
        raise Failure("; ".join([*silent, *closed])) if silent else _Unreachable(closed)

    def _first_timeout_ms(self) -> int:
        """Returns the timeout of the first request: five seconds, or longer if the user's file sets one."""
        timeouts_ms = [int(text) for key in _TIMEOUT_KEYS if (text := self.properties.get(key, "").strip()).isdecimal()]
        return max([_RESPONSE_MS, *timeouts_ms])

    def check(self) -> None:
        """Raises a Failure if no broker responds."""
        with self.admin():
            pass

    def _servers(self) -> list[str]:
        servers = list(dict.fromkeys(server.strip() for server in self.servers.split(",") if server.strip()))
        if not servers:
            raise click.UsageError("--bootstrap-server is missing; expected HOST:PORT[,HOST:PORT...]")
        for server in servers:
            self._address(server)
        return servers

    @staticmethod
    def _address(text: str) -> tuple[str, int]:
        host, colon, port = text.strip().rpartition(":")
        if "://" in host:
            host = host.partition("://")[2]
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise click.UsageError(f"--bootstrap-server {text.strip()!r}: expected HOST:PORT, such as localhost:9092")
        return host.strip("[]"), int(port)


@contextmanager
def producer(config: dict[str, object]) -> "Iterator[Producer]":
    """Yields a producer that flushes at the end. After Ctrl-C it waits only briefly for unreachable brokers."""
    from headrace.client.producer.producer import Producer

    client = Producer(config)
    try:
        yield client
    except KeyboardInterrupt:
        client.close(timeout_ms=_CLOSE_MS)
        raise
    finally:
        client.close()


def check_record_size(size: int | None, config: Mapping[str, object]) -> None:
    """Raises a usage error if a producer with these configs would reject the record, before allocating one."""
    max_size = str(config.get("max.request.size", _MAX_REQUEST)).strip()
    if size is not None and max_size.isdecimal() and size > int(max_size):
        raise click.UsageError(f"--record-size {size}: expected at most max.request.size ({max_size})")


def read_config(_: click.Context, param: click.Parameter, path: str | None) -> dict[str, str]:
    """Click callback: reads a property file."""
    if path is None:
        return {}
    try:
        return read_properties(path)
    except ConfigError as error:
        raise click.BadParameter(sentence(error), param=param) from None


def read_client_config(ctx: click.Context, param: click.Parameter, path: str | None) -> dict[str, str]:
    """Click callback: reads a property file with client configs."""
    return known_configs(read_config(ctx, param, path))


def client_key_values(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Click callback: parses client configs of the form `KEY=VALUE`."""
    return known_configs(key_values(ctx, param, values))


def key_values(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Click callback: parses repeated `KEY=VALUE` options."""
    properties = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param=param)
        properties[key.strip()] = value
    return properties


def connection_options(function: F) -> F:
    """Adds `--bootstrap-server` and `--command-config` to a command, and passes it a `connection` created from them."""
    return _connection_options(function, required=True)


def broker_list_options(function: F) -> F:
    """Like `connection_options`, also with the old name `--broker-list`."""
    return _connection_options(function, required=True, server_flags=("--broker-list",))


def cluster_tool_options(function: F) -> F:
    """Like `connection_options`, also with the names that only `kafka-cluster.sh` has: `-b`, `--config` and `-c`."""
    return _connection_options(function, required=True, server_flags=("-b",), config_flags=("--config", "-c"))


def optional_connection_options(function: F) -> F:
    """Like `connection_options`, for a tool that can also run without a cluster."""
    return _connection_options(function, required=False)


def _connection_options(
    function: F, required: bool, server_flags: tuple[str, ...] = (), config_flags: tuple[str, ...] = ()
) -> F:
    def command(*args: Any, bootstrap_server: str | None, command_config: dict[str, str], **options: Any) -> Any:
        return function(*args, connection=Connection(bootstrap_server or "", command_config), **options)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    text = "A property file with client configs, such as timeouts and TLS."
    command = click.option(
        "--command-config", *config_flags, "command_config", metavar="FILE", callback=read_client_config, help=text
    )(command)
    text = "The brokers to bootstrap from."
    decorate = click.option(
        "--bootstrap-server", *server_flags, "bootstrap_server", metavar="HOST:PORT[,...]", required=required, help=text
    )
    return decorate(command)  # type: ignore[return-value]


def client_config_options(kind: str) -> Callable[[F], F]:
    """Adds the options for producer or consumer configs to a command, which gets them as `client`."""

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
                help="Old name of --command-config.",
            ),
            click.option(
                "--command-property",
                f"--{kind}-property",
                "client_properties",
                metavar="KEY=VALUE",
                multiple=True,
                callback=client_key_values,
                help=f"A {kind} config.",
            ),
        ):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate
