"""The table of APIs: names, schema versions and message classes.

The codec supports all versions listed here; a broker's handlers define which versions it serves.
"""

import importlib
from functools import cached_property
from typing import Final

from headrace.protocol.api_keys import VERSIONS, ApiKey
from headrace.protocol.message import Message

__all__ = ["APIS", "Api", "ApiKey"]


class Api:
    """An API. Its message classes are imported at their first use."""

    def __init__(self, key: ApiKey, module: str, first: int, last: int, first_flexible: int):
        self.key = key
        self.module = module
        self.name = "".join(word.capitalize() for word in module.split("_"))
        """In Kafka's spelling: `ListOffsets`."""
        self.first_version = first
        self.last_version = last
        self.first_flexible = first_flexible
        """The first version with compact lengths and tagged fields; -1 if there is none."""

    def __repr__(self) -> str:
        return f"{self.name}({self.key:d}) v{self.first_version}-{self.last_version}"

    @property
    def versions(self) -> range:
        return range(self.first_version, self.last_version + 1)

    def is_flexible(self, version: int) -> bool:
        return 0 <= self.first_flexible <= version

    @cached_property
    def request(self) -> type[Message]:
        return self._load("Request")

    @cached_property
    def response(self) -> type[Message]:
        return self._load("Response")

    def _load(self, direction: str) -> type[Message]:
        module = importlib.import_module(f"headrace.protocol.messages.{self.module}")
        message_class = getattr(module, f"{self.name}{direction}")
        assert isinstance(message_class, type)
        assert issubclass(message_class, Message)
        return message_class


APIS: Final = {ApiKey(key): Api(ApiKey(key), *row) for key, row in VERSIONS.items()}
"""All APIs by key. Plain integers work as keys, too."""
