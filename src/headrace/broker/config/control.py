"""Configs of the requests between brokers, and of the broker's part in the control plane."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.config.inter_broker_protocol import INTER_BROKER_PROTOCOL_KEYS, InterBrokerProtocol
from headrace.common.config import ConfigKey, ConfigTable, ConfigType

CONTROL_KEYS = ConfigTable(
    [
        *INTER_BROKER_PROTOCOL_KEYS.keys.values(),
        ConfigKey(
            "request.timeout.ms",
            ConfigType.INT,
            30_000,
            "How long a broker waits for the response to a request to another broker.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "controller.socket.timeout.ms",
            ConfigType.INT,
            30_000,
            "How long the controller waits for a broker's response, and a broker for the controller's. Then the "
            "request is sent again.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.connection.setup.timeout.ms",
            ConfigType.LONG,
            10_000,
            "How long a broker waits for a connection to another broker. It doubles with each failure.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "socket.connection.setup.timeout.max.ms",
            ConfigType.LONG,
            30_000,
            "The limit of `socket.connection.setup.timeout.ms` after failures.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "control.plane.listener.name",
            ConfigType.STRING,
            None,
            "The listener for the controller's requests. It has its own connections and memory, so that clients cannot "
            "delay these requests. By default they use the inter-broker listener.",
            dynamic=False,
        ),
        ConfigKey(
            "controlled.shutdown.enable",
            ConfigType.BOOLEAN,
            True,
            "Whether a broker that stops has its leaderships moved to other brokers first.",
            dynamic=False,
        ),
        ConfigKey(
            "controlled.shutdown.max.retries",
            ConfigType.INT,
            3,
            "How often a broker tries a controlled shutdown before it stops anyway.",
            low=1,
            dynamic=False,
        ),
        ConfigKey(
            "controlled.shutdown.retry.backoff.ms",
            ConfigType.LONG,
            5_000,
            "The time between two attempts of a controlled shutdown.",
            low=0,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """Typed and checked values of `CONTROL_KEYS`."""

    protocol: InterBrokerProtocol
    request_timeout_ms: int
    controller_socket_timeout_ms: int
    setup_timeout_ms: int
    setup_timeout_max_ms: int
    control_plane_listener_name: str | None
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "ControlConfig":
        """Raises ConfigError."""
        values = CONTROL_KEYS.parse(properties or {})
        return cls(
            protocol=InterBrokerProtocol.parse(values["inter_broker_protocol_version"]),
            request_timeout_ms=values["request_timeout_ms"],
            controller_socket_timeout_ms=values["controller_socket_timeout_ms"],
            setup_timeout_ms=values["socket_connection_setup_timeout_ms"],
            setup_timeout_max_ms=values["socket_connection_setup_timeout_max_ms"],
            control_plane_listener_name=(values["control_plane_listener_name"] or "").upper() or None,
            controlled_shutdown_enable=values["controlled_shutdown_enable"],
            controlled_shutdown_max_retries=values["controlled_shutdown_max_retries"],
            controlled_shutdown_retry_backoff_ms=values["controlled_shutdown_retry_backoff_ms"],
        )
