"""The types of the admin calls about SCRAM credentials, with kafka-python's and Java's names."""

from dataclasses import dataclass, field
from enum import IntEnum

from headrace.common.errors import KafkaError

__all__ = [
    "AlteredScramCredentials",
    "ScramCredentialInfo",
    "ScramMechanism",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]

DEFAULT_ITERATIONS = 4096


class ScramMechanism(IntEnum):
    """A SCRAM mechanism."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Such as SCRAM-SHA-256."""
        return self.name.replace("_", "-")


def to_mechanism(value: "ScramMechanism | str | int") -> ScramMechanism:
    """Returns a mechanism by its number or by its name, with `-` or `_`."""
    try:
        return ScramMechanism[value.upper().replace("-", "_")] if isinstance(value, str) else ScramMechanism(value)
    except (KeyError, ValueError):
        raise ValueError(f"{value!r} is not a SCRAM mechanism: expected SCRAM-SHA-256 or SCRAM-SHA-512") from None


@dataclass(frozen=True)
class ScramCredentialInfo:
    """What can be read of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True)
class UserScramCredentialUpsertion:
    """A credential to create or replace. Only a key that is derived from the password is sent to the broker."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)
    """Random by default."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", to_mechanism(self.mechanism))
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise ValueError("mechanism must not be UNKNOWN: expected SCRAM-SHA-256 or SCRAM-SHA-512")
        if not self.password:
            raise ValueError("password must not be empty")


@dataclass(frozen=True)
class UserScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", to_mechanism(self.mechanism))


@dataclass(frozen=True)
class UserScramCredentialsDescription:
    """The SCRAM credentials of a user."""

    user: str
    credential_infos: tuple[ScramCredentialInfo, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True)
class AlteredScramCredentials:
    """The result of a change of a user's credentials."""

    error: KafkaError | None = None
