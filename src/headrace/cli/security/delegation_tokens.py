"""`headrace delegation-tokens`: delegation tokens, with the flags and the output of `kafka-delegation-tokens.sh`.

Unlike Kafka's tool, `--describe` without an owner lists all tokens that the client may see.
"""

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table
from headrace.cli.common.tool import LONG_MAX, Tool, exactly_one, only_with

if TYPE_CHECKING:
    from headrace.client.admin.token_types import DelegationToken

_PERIOD = click.IntRange(-LONG_MAX - 1, LONG_MAX)
_COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)


@click.command("delegation-tokens", cls=Tool)
@connection_options
@click.option("--create", is_flag=True, help="Create a token. Needs --max-life-time-period.")
@click.option("--renew", is_flag=True, help="Renew a token. Needs --hmac and --renew-time-period.")
@click.option("--expire", is_flag=True, help="Expire a token. Needs --hmac and --expiry-time-period.")
@click.option("--describe", is_flag=True, help="Show tokens: all that the client may see, or those of some owners.")
@click.option(
    "--owner-principal",
    "owners",
    metavar="TYPE:NAME",
    multiple=True,
    help="The owner of the token. With --describe, can be repeated.",
)
@click.option(
    "--renewer-principal",
    "renewers",
    metavar="TYPE:NAME",
    multiple=True,
    help="Who may renew the token; can be repeated.",
)
@click.option("--max-life-time-period", type=_PERIOD, metavar="MS", help="The maximum lifetime. -1: the broker's.")
@click.option("--renew-time-period", type=_PERIOD, metavar="MS", help="Until it expires. -1: the broker's default.")
@click.option("--expiry-time-period", type=_PERIOD, metavar="MS", help="Until it expires. -1: now.")
@click.option("--hmac", metavar="BASE64", help="The token's HMAC.")
@json_option
def delegation_tokens(
    connection: Connection,
    create: bool,
    renew: bool,
    expire: bool,
    describe: bool,
    owners: tuple[str, ...],
    renewers: tuple[str, ...],
    max_life_time_period: int | None,
    renew_time_period: int | None,
    expiry_time_period: int | None,
    hmac: str | None,
    as_json: bool,
) -> None:
    """Create, renew, expire and describe delegation tokens."""
    exactly_one({"--create": create, "--renew": renew, "--expire": expire, "--describe": describe}, "action")
    for flag, value, needed, action in (
        ("--max-life-time-period", max_life_time_period, create, "--create"),
        ("--renew-time-period", renew_time_period, renew, "--renew"),
        ("--expiry-time-period", expiry_time_period, expire, "--expire"),
        ("--hmac", hmac, renew or expire, "--renew and --expire"),
    ):
        only_with(flag, value is not None, needed, action)
        if needed and value is None:
            raise click.UsageError(f"Missing required argument {flag}")
    only_with("--owner-principal", bool(owners), create or describe, "--create and --describe")
    only_with("--json", as_json, create or describe, "--create and --describe")
    if create:
        assert max_life_time_period is not None
        _create(connection, owners, renewers, max_life_time_period, as_json)
    elif describe:
        _describe(connection, owners, as_json)
    elif renew:
        assert renew_time_period is not None
        secret = _decode(hmac)
        click.echo(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{renew_time_period}")
        with connection.admin() as admin:
            expiry = admin.renew_delegation_token(secret, renew_time_period)
        click.echo(f"Completed renew operation. New expiry date : {_date(expiry)}")
    else:
        assert expiry_time_period is not None
        secret = _decode(hmac)
        click.echo(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{expiry_time_period}")
        with connection.admin() as admin:
            expiry = admin.expire_delegation_token(secret, expiry_time_period)
        click.echo(f"Completed expire operation. New expiry date : {_date(expiry)}")


def _create(
    connection: Connection, owners: tuple[str, ...], renewers: tuple[str, ...], max_lifetime_ms: int, as_json: bool
) -> None:
    if len(owners) > 1:
        raise click.UsageError("A token has one owner: --owner-principal is only allowed once with --create")
    _check(owners, "--owner-principal")
    _check(renewers, "--renewer-principal")
    if not as_json:
        shown = ", ".join(renewers)
        click.echo(f"Calling create token operation with renewers :[{shown}] , max-life-time-period :{max_lifetime_ms}")
    with connection.admin() as admin:
        token = admin.create_delegation_token(renewers, max_lifetime_ms, *owners)
    if as_json:
        print_json(_as_json(token))
        return
    click.echo(f"Created delegation token with tokenId : {token.token_info.token_id}")
    if not is_terminal():
        click.echo()
    _print([token])


def _describe(connection: Connection, owners: tuple[str, ...], as_json: bool) -> None:
    _check(owners, "--owner-principal")
    with connection.admin() as admin:
        tokens = admin.describe_delegation_token(owners or None)
    if as_json:
        print_json([_as_json(token) for token in tokens])
        return
    shown = f"owners: [{', '.join(owners)}]" if owners else "current user."
    click.echo(f"Calling describe token operation for {shown}")
    click.echo(f"Total number of tokens : {len(tokens)}")
    _print(tokens)


def _check(principals: Iterable[str], flag: str) -> None:
    from headrace.cli.security.acl_arguments import principal

    for text in principals:
        principal(text, flag)


def _decode(hmac: str | None) -> bytes:
    try:
        return base64.b64decode(hmac or "", validate=True)
    except binascii.Error:
        raise click.UsageError("--hmac is not base64: expected the HMAC that --create and --describe print") from None


# ---- text


def _print(tokens: "Iterable[DelegationToken]") -> None:
    rows = [_row(token) for token in tokens]
    if is_terminal():
        print_table(_COLUMNS, rows)
        return
    click.echo(_line(_COLUMNS))
    for row in rows:
        click.echo(f"\n{_line(row)}")


def _line(cells: Iterable[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _row(token: "DelegationToken") -> tuple[str, ...]:
    information = token.token_info
    return (
        information.token_id,
        token.hmac_as_base64_string,
        information.owner,
        information.token_requester,
        f"[{', '.join(information.renewers)}]",
        _date(information.issue_timestamp),
        _date(information.expiry_timestamp),
        _date(information.max_timestamp),
    )


def _date(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _as_json(token: "DelegationToken") -> dict[str, Any]:
    information = token.token_info
    return {
        "tokenId": information.token_id,
        "hmac": token.hmac_as_base64_string,
        "owner": information.owner,
        "requester": information.token_requester,
        "renewers": list(information.renewers),
        "issueTimestamp": information.issue_timestamp,
        "expiryTimestamp": information.expiry_timestamp,
        "maxTimestamp": information.max_timestamp,
    }
