"""The declarations of rights: every API has one, and a handler without one fails at import."""

from typing import Any, cast

import pytest

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY, api
from headrace.broker.required_rights import (
    DENIED,
    RequiredRights,
    on_cluster,
    on_group,
    on_topic,
    requires,
    requires_cluster,
    requires_nothing,
)
from headrace.protocol.apis import ApiKey
from headrace.security.acls import Operation, ResourceType


def test_every_api_declares_its_rights() -> None:
    handlers.load()
    for served in REGISTRY.values():
        assert isinstance(served.needs, RequiredRights)
        for one_of in served.needs.all_of:
            assert one_of.without
            assert all(right.resource in DENIED for right in one_of.rights)


@pytest.mark.parametrize("needs", [None, (), Operation.READ])
def test_a_handler_without_a_declaration_fails(needs: Any) -> None:
    with pytest.raises(TypeError, match="METADATA: declare the rights that it requires"):
        api(ApiKey.METADATA, 0, 13, needs=needs)
    with pytest.raises(TypeError, match="needs"):
        cast(Any, api)(ApiKey.METADATA, 0, 13)


def test_a_declaration_without_rights_has_a_reason() -> None:
    for empty in (lambda: requires(), lambda: requires_nothing("")):
        with pytest.raises(TypeError, match="a reason why it requires none"):
            empty()
    assert requires_nothing("It is public.").all_of == ()


def test_alternatives() -> None:
    needs = requires(on_group(Operation.READ), on_cluster(Operation.CREATE) | on_topic(Operation.CREATE, "each topic"))
    assert [len(one_of.rights) for one_of in needs.all_of] == [1, 2]
    assert [one_of.without for one_of in needs.all_of] == ["GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"]
    three = on_cluster(Operation.ALTER) | on_cluster(Operation.CREATE) | on_topic(Operation.CREATE, without="left out")
    assert (len(three.rights), three.without) == (3, "left out")


def test_the_dispatcher_enforces_rights_on_the_cluster() -> None:
    needs = requires_cluster(Operation.CLUSTER_ACTION)
    assert needs.enforced is Operation.CLUSTER_ACTION
    assert needs.all_of[0].rights[0].resource is ResourceType.CLUSTER
    assert requires(on_cluster(Operation.ALTER)).enforced is None
