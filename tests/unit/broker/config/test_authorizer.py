import pytest

from headrace.broker.config.authorizer import AuthorizerConfig
from headrace.broker.config.broker import BrokerConfig
from headrace.common.errors import ConfigError
from headrace.common.principal import Principal


def test_defaults() -> None:
    config = BrokerConfig.from_properties({}).authorizer
    assert config == AuthorizerConfig(enabled=False, super_users=frozenset(), allow_everyone_if_no_acl_found=False)


@pytest.mark.parametrize(
    "name",
    [
        "headrace",
        "kafka.security.authorizer.AclAuthorizer",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ],
)
def test_authorizers(name: str) -> None:
    assert AuthorizerConfig.from_properties({"authorizer.class.name": name}).enabled


def test_values() -> None:
    properties = {
        "super.users": " User:admin; User:CN=broker,O=a:b ;;Group:x",
        "allow.everyone.if.no.acl.found": "true",
        "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    }
    config = BrokerConfig.from_properties(properties).authorizer
    assert config.allow_everyone_if_no_acl_found
    assert config.super_users == {
        Principal("User", "admin"),
        Principal("User", "CN=broker,O=a:b"),
        Principal("Group", "x"),
    }


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("authorizer.class.name", "com.example.MyAuthorizer", "Java plugins, which are not supported"),
        ("authorizer.class.name", "kafka.security.auth.SimpleAclAuthorizer", "Expected one of headrace, kafka.sec"),
        ("super.users", "admin", "'admin' is not a principal: expected Type:name"),
        ("super.users", "User:a;User:", "super.users"),
        ("principal.builder.class", "com.example.Builder", "Use ssl.principal.mapping.rules"),
        ("allow.everyone.if.no.acl.found", "maybe", "allow.everyone.if.no.acl.found"),
    ],
)
def test_refused(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        BrokerConfig.from_properties({key: value})
    assert message in str(caught.value)
