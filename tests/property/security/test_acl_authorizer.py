"""The authorizer decides as a slow, obvious one, while ACLs change."""

import random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.security.random_acls import make_cases
from tests.support.security.reference_authorizer import decide

from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acls import AclBinding, AclBindingFilter, PatternType, ResourcePattern


@given(st.randoms(use_true_random=False))
def test_decides_as_the_reference(random: random.Random) -> None:
    scenario = make_cases(random, 40)
    authorizer = AclAuthorizer(allow_everyone_if_no_acl_found=scenario.everyone)
    acls: set[AclBinding] = set()
    for batch in (scenario.acls[: len(scenario.acls) // 2], scenario.acls[len(scenario.acls) // 2 :]):
        # Earlier ACLs disappear now and then, so that cached decisions and the index have to follow.
        gone = {acl for acl in acls if random.random() < 0.3}
        acls = (acls - gone) | set(batch)
        for pattern in {acl.pattern for acl in (*gone, *batch)}:
            authorizer.set_entries(pattern, (acl.entry for acl in acls if acl.pattern == pattern))
        for case in scenario.cases:
            expected = decide(list(acls), *case, everyone=scenario.everyone)
            assert authorizer.is_authorized(*case) is expected
            assert authorizer.is_authorized(*case) is expected  # from the cache
        assert set(authorizer.acls(AclBindingFilter())) == acls
        for selected in scenario.filters:
            assert set(authorizer.acls(selected)) == set(filter(selected.matches, acls))


@given(st.randoms(use_true_random=False))
def test_any_resource_means_that_there_is_one(random: random.Random) -> None:
    """KIP-679: the decision about any resource of a type agrees with the decisions about single resources."""
    scenario = make_cases(random, 25)
    authorizer = AclAuthorizer(allow_everyone_if_no_acl_found=scenario.everyone)
    patterns = {acl.pattern for acl in scenario.acls}
    for pattern in patterns:
        authorizer.set_entries(pattern, (acl.entry for acl in scenario.acls if acl.pattern == pattern))
    for principal, host, operation, resource in scenario.cases:
        allowed = authorizer.is_authorized_for_any(principal, host, operation, resource.type)
        examples = {
            example for pattern in patterns if pattern.type is resource.type for example in examples_of(pattern)
        }
        found = any(
            decide(_explicit(scenario.acls, operation), principal, host, operation, type(resource)(resource.type, name))
            for name in examples
        )
        if not scenario.everyone:
            assert allowed is found


def examples_of(pattern: ResourcePattern) -> tuple[str, ...]:
    """Returns the name of a pattern, if it is one, and a name that matches it but no longer pattern."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return (pattern.name + "\N{SNOWMAN}",)
    return ("\N{SNOWMAN}",) if pattern.name == "*" else (pattern.name,)


def _explicit(acls: list[AclBinding], operation: object) -> list[AclBinding]:
    """Leaves out the ACLs of other operations, which could imply this one."""
    return [acl for acl in acls if acl.entry.operation in (operation, 2)]
