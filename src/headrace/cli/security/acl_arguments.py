"""Which ACLs the flags of `headrace acls` name, with the rules of `kafka-acls.sh`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from headrace.client.admin.acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from headrace.common.errors import ConfigError
from headrace.common.principal import parse_principal
from headrace.security.acls import CLUSTER_NAME

_ALL_HOSTS = "*"
_OPERATIONS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}
"""The operations that have a meaning for resources of a type, besides ALL."""


@dataclass(frozen=True)
class Entry:
    """What an ACL says about resources that are named elsewhere."""

    principal: str
    host: str
    operation: ACLOperation
    permission: ACLPermissionType

    def on(self, pattern: ResourcePattern) -> ACL:
        return ACL(self.principal, self.host, self.operation, self.permission, pattern)

    def filter_on(self, pattern: ResourcePatternFilter) -> ACLFilter:
        return ACLFilter(self.principal, self.host, self.operation, self.permission, pattern)

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


@dataclass(frozen=True, kw_only=True)
class AclArguments:
    """The flags about resources, principals and operations."""

    topics: Sequence[str]
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    delegation_tokens: Sequence[str]
    user_principals: Sequence[str]
    cluster: bool
    pattern_type: ACLResourcePatternType
    allow_principals: Sequence[str]
    deny_principals: Sequence[str]
    allow_hosts: Sequence[str]
    deny_hosts: Sequence[str]
    operations: Sequence[str]
    producer: bool
    consumer: bool
    idempotent: bool

    def check_producer_and_consumer(self) -> None:
        """Raises a usage error if --producer, --consumer or --idempotent lack something or have too much."""
        for flag, is_set in (("--producer", self.producer), ("--consumer", self.consumer)):
            given = {
                "--operation": self.operations,
                "--deny-principal": self.deny_principals,
                "--deny-host": self.deny_hosts,
            }
            for other, values in given.items():
                if is_set and values:
                    raise click.UsageError(f"{other} is not allowed with {flag}")
        if self.producer and not self.topics:
            raise click.UsageError("With --producer you must specify a --topic")
        if self.idempotent and not self.producer:
            raise click.UsageError("The --idempotent option is only available if --producer is set")
        has_other = not self.producer and (self.cluster or bool(self.transactional_ids))
        if self.consumer and (not self.topics or not self.groups or has_other):
            raise click.UsageError(
                "With --consumer you must specify a --topic and a --group, and no --cluster or --transactional-id"
            )

    def resources(self) -> list[ResourcePatternFilter]:
        """Returns the resources that the flags name; none if no flag names one."""
        named = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.DELEGATION_TOKEN: self.delegation_tokens,
            ResourceType.USER: [principal(text, "--user-principal") for text in self.user_principals],
        }
        patterns = [
            ResourcePatternFilter(kind, name.strip(), self.pattern_type)
            for kind, names in named.items()
            for name in dict.fromkeys(names)
        ]
        if self.cluster:
            patterns.append(ResourcePatternFilter(ResourceType.CLUSTER, CLUSTER_NAME, ACLResourcePatternType.LITERAL))
        return patterns

    def entries(self) -> list[tuple[ResourcePatternFilter, list[Entry]]]:
        """Returns the entries for each named resource. Raises a usage error if no flag names one."""
        resources = self.resources()
        if not resources:
            raise click.UsageError(
                "You must provide at least one resource: --topic, --cluster, --group, --transactional-id, "
                "--delegation-token or --user-principal"
            )
        result: list[tuple[ResourcePatternFilter, list[Entry]]] = []
        for resource in resources:
            if self.producer or self.consumer:
                entries = self._convenient_entries(resource.resource_type)
            else:
                entries = self._entries([_operation(name) for name in self.operations] or [ACLOperation.ALL])
                check_operations(resource.resource_type, entries)
            if entries or not (self.producer or self.consumer):
                result.append((resource, entries))
        if self.idempotent and not self.cluster:
            cluster = ResourcePatternFilter(ResourceType.CLUSTER, CLUSTER_NAME, ACLResourcePatternType.LITERAL)
            result.append((cluster, self._entries([ACLOperation.IDEMPOTENT_WRITE])))
        return result

    def _convenient_entries(self, kind: ResourceType) -> list[Entry]:
        """Returns the entries of --producer and --consumer for resources of a type."""
        operations: dict[ACLOperation, None] = {}
        if self.producer:
            if kind is ResourceType.TOPIC:
                operations |= dict.fromkeys([ACLOperation.WRITE, ACLOperation.DESCRIBE, ACLOperation.CREATE])
            elif kind is ResourceType.TRANSACTIONAL_ID:
                operations |= dict.fromkeys([ACLOperation.WRITE, ACLOperation.DESCRIBE])
            elif kind is ResourceType.CLUSTER and self.idempotent:
                operations |= dict.fromkeys([ACLOperation.IDEMPOTENT_WRITE])
        if self.consumer:
            if kind is ResourceType.TOPIC:
                operations |= dict.fromkeys([ACLOperation.READ, ACLOperation.DESCRIBE])
            elif kind is ResourceType.GROUP:
                operations |= dict.fromkeys([ACLOperation.READ])
        return self._entries(operations)

    def _entries(self, operations: Iterable[ACLOperation]) -> list[Entry]:
        asked = list(operations)
        return [
            Entry(who, host, operation, permission)
            for permission, principals, hosts, flag in (
                (ACLPermissionType.ALLOW, self.allow_principals, self.allow_hosts, "--allow-principal"),
                (ACLPermissionType.DENY, self.deny_principals, self.deny_hosts, "--deny-principal"),
            )
            for who in dict.fromkeys(principal(text, flag) for text in principals)
            for host in dict.fromkeys(hosts or (_ALL_HOSTS,))
            for operation in dict.fromkeys(asked)
        ]


def principal(text: str, flag: str) -> str:
    """Returns the principal of a flag. Raises a usage error."""
    try:
        return str(parse_principal(text.strip()))
    except ConfigError as error:
        raise click.UsageError(f"{flag}: {error}") from None


def check_operations(kind: ResourceType, entries: Iterable[Entry]) -> None:
    """Raises a usage error if an operation has no meaning for resources of a type."""
    supported = [*_OPERATIONS[kind].split(), ACLOperation.ALL.name]
    for entry in entries:
        if entry.operation.name not in supported:
            raise click.UsageError(f"ResourceType {kind.name} only supports operations {', '.join(supported)}")


def _operation(text: str) -> ACLOperation:
    """Returns an operation by its name: `DescribeConfigs`, or `DESCRIBE_CONFIGS`."""
    wanted = text.strip().replace("_", "").lower()
    for operation in ACLOperation:
        if operation.name.replace("_", "").lower() == wanted and operation > ACLOperation.ANY:
            return operation
    names = ", ".join(operation.title for operation in ACLOperation if operation > ACLOperation.ANY)
    raise click.UsageError(f"--operation {text!r}: expected one of {names}")
