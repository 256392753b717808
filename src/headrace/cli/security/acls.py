"""`headrace acls`: access control lists, with the flags and the output of `kafka-acls.sh`."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.names import complete_groups, complete_topics
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table
from headrace.cli.common.tool import Failure, Tool, exactly_one, only_with

if TYPE_CHECKING:
    from headrace.cli.security.acl_arguments import AclArguments, Entry
    from headrace.client.admin.acl_types import ACL, ResourcePatternFilter
    from headrace.client.admin.admin import Admin

_COLUMNS = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")


@click.command("acls", cls=Tool)
@connection_options
@click.option("--add", is_flag=True, help="Add ACLs.")
@click.option("--remove", is_flag=True, help="Remove ACLs: those that the other flags describe, or all of a resource.")
@click.option("--list", "list_", is_flag=True, help="List ACLs, of some resources or of all.")
@click.option(
    "--topic",
    "topics",
    shell_complete=complete_topics,
    metavar="NAME",
    multiple=True,
    help="A topic; * stands for all. Can be repeated, like all flags that name something.",
)
@click.option("--group", "groups", shell_complete=complete_groups, metavar="NAME", multiple=True, help="A group.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@click.option("--transactional-id", "transactional_ids", metavar="ID", multiple=True, help="A transactional id.")
@click.option("--delegation-token", "delegation_tokens", metavar="ID", multiple=True, help="A delegation token.")
@click.option(
    "--user-principal", "user_principals", metavar="TYPE:NAME", multiple=True, help="A user, for tokens of this user."
)
@click.option(
    "--resource-pattern-type",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="literal: the names; prefixed: everything with these prefixes. With --list and --remove also match: all ACLs "
    "that apply to the names; any: literal or prefixed.",
)
@click.option("--allow-principal", "allow_principals", metavar="TYPE:NAME", multiple=True, help="Allow: User:alice.")
@click.option("--deny-principal", "deny_principals", metavar="TYPE:NAME", multiple=True, help="Deny: User:eve.")
@click.option("--principal", "principals", metavar="TYPE:NAME", multiple=True, help="List only ACLs of this principal.")
@click.option(
    "--allow-host", "allow_hosts", metavar="ADDRESS", multiple=True, help="Allow from this address.  [default: *]"
)
@click.option(
    "--deny-host", "deny_hosts", metavar="ADDRESS", multiple=True, help="Deny from this address.  [default: *]"
)
@click.option("--operation", "operations", metavar="NAME", multiple=True, help="Such as Read.  [default: All]")
@click.option("--producer", is_flag=True, help="What a producer needs: WRITE, DESCRIBE and CREATE on its topics.")
@click.option(
    "--consumer", is_flag=True, help="What a consumer needs: READ and DESCRIBE on its topics, READ on its group."
)
@click.option("--idempotent", is_flag=True, help="With --producer: IDEMPOTENT_WRITE, for brokers older than Kafka 3.0.")
@click.option("--force", is_flag=True, help="Remove without asking.")
@json_option
def acls(
    connection: Connection,
    add: bool,
    remove: bool,
    list_: bool,
    resource_pattern_type: str,
    principals: tuple[str, ...],
    force: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """List, add and remove access control lists."""
    from headrace.cli.security.acl_arguments import AclArguments, principal
    from headrace.client.admin.acl_types import ACLResourcePatternType

    action = exactly_one({"--list": list_, "--add": add, "--remove": remove}, "action")
    arguments = AclArguments(pattern_type=ACLResourcePatternType[resource_pattern_type.upper()], **flags)
    only_with("--principal", bool(principals), list_, "--list")
    only_with("--json", as_json, list_, "--list")
    for flag in ("--producer", "--consumer", "--allow-host", "--allow-principal", "--deny-host", "--deny-principal"):
        name = flag.removeprefix("--").replace("-", "_")
        is_set = flags[name if name in flags else f"{name}s"]
        only_with(flag, bool(is_set), not list_, "--add and --remove")
    arguments.check_producer_and_consumer()
    if action == "--list":
        with connection.admin() as admin:
            _list(admin, arguments, [principal(text, "--principal") for text in principals], as_json)
    elif action == "--add":
        _check_addition(arguments)
        to_add = arguments.entries()
        if not any(entries for _, entries in to_add):
            raise click.UsageError(
                "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs"
            )
        with connection.admin() as admin:
            for resource, entries in to_add:
                _add(admin, resource, entries)
    else:
        to_remove = arguments.entries()
        with connection.admin() as admin:
            for resource, entries in to_remove:
                _remove(admin, resource, entries, force=force)


# ---- actions


def _check_addition(arguments: "AclArguments") -> None:
    if arguments.pattern_type.name not in ("LITERAL", "PREFIXED"):
        raise click.UsageError(
            f"A '--resource-pattern-type' value of '{arguments.pattern_type.name}' is not valid when adding ACLs"
        )


def _add(admin: "Admin", resource: "ResourcePatternFilter", entries: "Sequence[Entry]") -> None:
    from headrace.client.admin.acl_types import ACLFilter, ResourcePattern

    assert resource.resource_name is not None
    pattern = ResourcePattern(resource.resource_type, resource.resource_name, resource.pattern_type)
    existing = set(admin.describe_acls(ACLFilter(resource_pattern=pattern)))
    new = [entry for entry in entries if entry.on(pattern) not in existing]
    for entry in entries:
        if entry not in new:
            click.echo(f"Acl (pattern={_text(pattern)}, entry={entry}) already exists.")
    if new:
        click.echo(f"Adding ACLs for resource `{_text(pattern)}`: \n {_lines(new)}\n")
        admin.create_acls([entry.on(pattern) for entry in new])


def _remove(admin: "Admin", resource: "ResourcePatternFilter", entries: "Sequence[Entry]", *, force: bool) -> None:
    from headrace.client.admin.acl_types import ACLFilter

    if not entries:
        question = f"Are you sure you want to delete all ACLs for resource filter `{_text(resource)}`? (y/n)"
        filters: list[ACLFilter] = [ACLFilter(resource_pattern=resource)]
    else:
        question = (
            f"Are you sure you want to remove ACLs: \n {_lines(entries)} \n"
            f"from resource filter `{_text(resource)}`? (y/n)"
        )
        filters = [entry.filter_on(resource) for entry in entries]
    if force or _is_confirmed(question):
        admin.delete_acls(filters)


def _is_confirmed(question: str) -> bool:
    click.echo(question)
    answer = sys.stdin.readline()
    if not answer:
        raise Failure("No answer on standard input; --force removes without asking")
    return answer.strip().lower() == "y"


def _list(admin: "Admin", arguments: "AclArguments", principals: Sequence[str], as_json: bool) -> None:
    from headrace.client.admin.acl_types import ACLFilter, ResourcePatternFilter

    resources: Iterable[ResourcePatternFilter] = arguments.resources() or [ResourcePatternFilter()]
    found: dict[ACL, None] = {}
    for resource in resources:
        found |= dict.fromkeys(admin.describe_acls(ACLFilter(resource_pattern=resource)))
    if as_json:
        print_json([_as_json(acl) for acl in _sorted(found) if not principals or acl.principal in principals])
        return
    if is_terminal():
        chosen = [acl for acl in _sorted(found) if not principals or acl.principal in principals]
        print_table(_COLUMNS, [list(_as_json(acl).values()) for acl in chosen])
        return
    if not principals:
        _print_list(found)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`")
        _print_list(acl for acl in found if acl.principal == principal)


def _print_list(acls: "Iterable[ACL]") -> None:
    from headrace.cli.security.acl_arguments import Entry

    by_pattern: dict[Any, list[Entry]] = {}
    for acl in _sorted(acls):
        entry = Entry(acl.principal, acl.host, acl.operation, acl.permission_type)
        by_pattern.setdefault(acl.resource_pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        click.echo(f"Current ACLs for resource `{_text(pattern)}`:\n{_lines(entries)}\n")


# ---- text


def _sorted(acls: "Iterable[ACL]") -> "list[ACL]":
    return sorted(
        acls,
        key=lambda acl: (
            acl.resource_pattern.resource_type,
            acl.resource_pattern.resource_name,
            acl.resource_pattern.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        ),
    )


def _lines(entries: "Iterable[Entry]") -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _text(pattern: "ResourcePatternFilter") -> str:
    return (
        f"ResourcePattern(resourceType={pattern.resource_type.name}, name={pattern.resource_name}, "
        f"patternType={pattern.pattern_type.name})"
    )


def _as_json(acl: "ACL") -> Mapping[str, str]:
    pattern = acl.resource_pattern
    return {
        "resourceType": pattern.resource_type.name,
        "name": pattern.resource_name,
        "patternType": pattern.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permissionType": acl.permission_type.name,
    }
