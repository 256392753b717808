"""Certificates for TLS tests."""

import subprocess
from pathlib import Path

import pytest


def make_certificate(directory: Path) -> Path:
    """Creates a certificate for this machine and its key in one file. Skips the test without openssl."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
    try:
        subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    both = directory / "both.pem"
    both.write_text((directory / "cert.pem").read_text() + (directory / "key.pem").read_text())
    return both
