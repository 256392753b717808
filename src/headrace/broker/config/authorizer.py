"""The configs of access control: which authorizer decides, and who may do everything."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.common.config import ConfigKey, ConfigTable, ConfigType
from headrace.common.errors import ConfigError
from headrace.common.principal import Principal, parse_principal

AUTHORIZER_CLASSES = (
    "headrace",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""All of them are the same authorizer here: ACLs in the coordination store."""
_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def _check_authorizer(name: str) -> str | None:
    if name in ("", *AUTHORIZER_CLASSES):
        return None
    return (
        "other authorizers are Java plugins, which are not supported; without an authorizer everybody would have "
        f"access. Expected one of {', '.join(AUTHORIZER_CLASSES)}"
    )


def _check_principal_builder(name: str) -> str | None:
    if name in ("", _PRINCIPAL_BUILDER):
        return None
    return (
        "principal builders are Java plugins, which are not supported. Use ssl.principal.mapping.rules or "
        "sasl.kerberos.principal.to.local.rules to map the names of clients"
    )


AUTHORIZER_KEYS = ConfigTable(
    [
        ConfigKey(
            "authorizer.class.name",
            ConfigType.STRING,
            "",
            "The authorizer, which decides by ACLs who may do what. `headrace`, "
            "`kafka.security.authorizer.AclAuthorizer` and `org.apache.kafka.metadata.authorizer.StandardAuthorizer` "
            "are the same one here. If it is empty, every client may do everything.",
            check=_check_authorizer,
            dynamic=False,
        ),
        ConfigKey(
            "super.users",
            ConfigType.STRING,
            "",
            "Principals that may do everything, regardless of ACLs: `User:admin;User:CN=broker,O=example`.",
            dynamic=False,
        ),
        ConfigKey(
            "allow.everyone.if.no.acl.found",
            ConfigType.BOOLEAN,
            False,
            "Whether everybody may do everything with resources that no ACL mentions.",
            dynamic=False,
        ),
        ConfigKey(
            "principal.builder.class",
            ConfigType.STRING,
            "",
            "Kafka's class that determines principals. Only Kafka's default is supported.",
            check=_check_principal_builder,
            dynamic=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class AuthorizerConfig:
    """Typed and checked values of `AUTHORIZER_KEYS`."""

    enabled: bool
    super_users: frozenset[Principal]
    allow_everyone_if_no_acl_found: bool

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> "AuthorizerConfig":
        """Raises ConfigError."""
        values = AUTHORIZER_KEYS.parse(properties or {})
        return cls(
            enabled=bool(values["authorizer_class_name"]),
            super_users=_super_users(values["super_users"]),
            allow_everyone_if_no_acl_found=values["allow_everyone_if_no_acl_found"],
        )


def _super_users(text: str) -> frozenset[Principal]:
    try:
        return frozenset(parse_principal(part.strip()) for part in text.split(";") if part.strip())
    except ConfigError as error:
        raise ConfigError(f"Invalid value {text!r} for configuration super.users: {error}") from None
