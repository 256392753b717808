"""Read access to a parsed configuration by key, as kafka-python's `producer.config["acks"]`."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

__all__ = ["ConfigMapping"]

_NOT_KEYS = ("explicit",)


class ConfigMapping(Mapping[str, Any]):
    """The base class of the parsed configurations, which are frozen dataclasses with an attribute per key.

    `config["group_id"]` and `config["group.id"]` are `config.group_id`. Iteration yields kafka-python's names.
    """

    def __getitem__(self, key: str) -> Any:
        name = key.replace(".", "_") if isinstance(key, str) else ""
        if name in _NOT_KEYS or name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise KeyError(key)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self) if field.name not in _NOT_KEYS)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self)) - len(_NOT_KEYS)  # type: ignore[arg-type]
