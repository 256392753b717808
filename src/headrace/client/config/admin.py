"""The admin client's configuration keys."""

from headrace.client.config.common import COMMON_KEYS, COMMON_OBJECTS, INT, REFUSED, UNUSED
from headrace.client.config.table import ClientTable
from headrace.client.config.types import AdminConfig
from headrace.common.config import ConfigKey

__all__ = ["ADMIN_KEYS"]

ADMIN_KEYS = ClientTable(
    AdminConfig,
    (
        *COMMON_KEYS,
        ConfigKey(
            "default.api.timeout.ms",
            INT,
            60_000,
            "How long a call without `timeout_ms` may take, including all retries.",
            low=1,
        ),
    ),
    objects=COMMON_OBJECTS,
    unused=(*UNUSED, "retries", "max.in.flight.requests.per.connection"),
    refused=REFUSED,
)
