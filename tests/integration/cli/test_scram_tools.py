"""SCRAM credentials with `headrace storage add-scram` before the first start, and with `headrace configs` after it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.security.sasl_broker import client_config, sasl_properties

import headrace
from headrace.cli.main import main
from headrace.common.errors import SaslAuthenticationFailedError
from headrace.testing import EmbeddedBroker


def run(*args: str, code: int = 0) -> str:
    ran = CliRunner().invoke(main, args, prog_name="headrace")
    assert ran.exit_code == code, ran.output
    return ran.output


def add_scram(directory: Path, *credentials: str, code: int = 0) -> str:
    flags: Sequence[str] = [word for credential in credentials for word in ("--add-scram", credential)]
    return run("storage", "add-scram", "-o", f"log.dirs={directory}", *flags, code=code)


def test_credentials_before_and_after_the_first_start(tmp_path: Path) -> None:
    assert "user broker." in add_scram(
        tmp_path,
        "SCRAM-SHA-512=[name=broker,password=broker-secret]",
        "SCRAM-SHA-256=[name=alice,iterations=8192,password=alice-secret]",
    )
    with EmbeddedBroker(sasl_properties("SCRAM-SHA-512"), topics={"t": 1}, data_dir=tmp_path) as broker:
        servers = broker.bootstrap_servers
        config = client_config(servers, "SCRAM-SHA-256")
        with headrace.Admin(config) as admin:
            assert admin.list_topics() == ["t"]
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items() if key != "bootstrap.servers"))
        tool = ("configs", "--bootstrap-server", servers, "--command-config", str(file))
        bob = ("--entity-type", "users", "--entity-name", "bob")
        changed = run(
            *tool,
            "--alter",
            *bob,
            "--add-config",
            "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=a,b],producer_byte_rate=1024",
        )
        assert changed == "Completed updating config for user bob.\n"
        assert run(*tool, "--describe", *bob) == (
            "Quota configs for user-principal 'bob' are producer_byte_rate=1024.0\n"
            "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192, "
            "SCRAM-SHA-512=iterations=4096\n"
        )
        everybody = run(*tool, "--describe", "--entity-type", "users", "--json")
        assert {"entity": {"user": "alice"}, "scram": {"SCRAM-SHA-256": 8192}} in json.loads(everybody)
        with headrace.Admin({**client_config(servers, "SCRAM-SHA-512", "bob"), "sasl.password": "a,b"}) as admin:
            assert admin.list_topics() == ["t"]
        run(*tool, "--alter", *bob, "--delete-config", "SCRAM-SHA-512")
        refused = pytest.raises(SaslAuthenticationFailedError)
        own = {**client_config(servers, "SCRAM-SHA-512", "bob"), "sasl.password": "a,b"}
        with headrace.Admin(own) as admin, refused:
            admin.list_topics(timeout_ms=30_000)
        missing = run(*tool, "--alter", *bob, "--delete-config", "SCRAM-SHA-512", code=1)
        assert "Attempt to delete a user credential that does not exist: bob" in missing
        weak = run(*tool, "--alter", *bob, "--add-config", "SCRAM-SHA-256=[iterations=1,password=top-secret]", code=1)
        assert "Too few iterations" in weak
        assert "top-secret" not in weak
        wrong = run(*tool, "--alter", "--user-defaults", "--add-config", "SCRAM-SHA-256=[password=top-secret]", code=1)
        assert "belong to one user" in wrong
        locked = add_scram(tmp_path, "SCRAM-SHA-256=[name=eve,password=x]", code=1)
        assert "Traceback" not in locked
        run(*tool, "--describe", *bob)


@pytest.mark.parametrize(
    "credential",
    ["SCRAM-SHA-256=[name=eve]", "MD5=[name=eve,password=top-secret]", "SCRAM-SHA-256=[password=top-secret]"],
)
def test_wrong_credentials_are_refused_without_their_password(tmp_path: Path, credential: str) -> None:
    output = add_scram(tmp_path, credential, code=1)
    assert "expected" in output
    assert "top-secret" not in output
    assert not list(tmp_path.iterdir())
