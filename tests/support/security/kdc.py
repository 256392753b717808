"""A Kerberos KDC on loopback with its own realm, from Debian's packages, and the package gssapi for this Python.

Both are installed on demand. `KerberosUnavailable` says why that is not possible.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka.jvm import apt_lock, cache_root, file_lock

REALM = "HEADRACE.TEST"
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "libsasl2-modules-gssapi-mit")
_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit", "krb5-config")
_SASL_MODULE = "*/sasl2/libgssapiv2.so"
"""What kcat's librdkafka needs."""
_SBIN = "/usr/sbin:/sbin"
_ROOT = Path(__file__).parents[3]
_INSTALL_SECONDS = 400
_START_SECONDS = 60


class KerberosUnavailable(Exception):
    """Kerberos is not installed and cannot be installed."""


def install_kerberos() -> None:
    """Installs the KDC and its tools with apt-get. Raises KerberosUnavailable."""
    if _is_installed():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise KerberosUnavailable("krb5-kdc is not installed, and only root can install it with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = None
    with apt_lock():
        for command in (["apt-get", "-qy", "install", *_PACKAGES], ["apt-get", "-q", "update"]) * 2:
            if _is_installed():
                return
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_INSTALL_SECONDS,
                check=False,
            )
    if not _is_installed():
        assert done is not None
        reason = done.stderr.decode(errors="replace").strip()[-300:]
        raise KerberosUnavailable(f"apt-get cannot install {' '.join(_PACKAGES)}: {reason}")


def install_gssapi() -> Path:
    """Builds the pinned version of the package gssapi, once per Python version, and returns its directory.

    It is not in the environment of the other tests, because its build needs Debian's headers.
    """
    pins = [
        line
        for line in (_ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith(("gssapi==", "decorator=="))
    ]
    version = next(line.partition("==")[2] for line in pins if line.startswith("gssapi"))
    target = cache_root() / f"gssapi-{version}-{sys.implementation.cache_tag}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.parent / "gssapi.lock"):
        if (target / "gssapi").exists():
            return target
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(partial), *pins],
            env={**os.environ, "CFLAGS": "-O0"},  # quicker to build
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            raise KerberosUnavailable(f"pip cannot build gssapi: {done.stderr.strip()[-500:]}")
        partial.rename(target)
    return target


def _is_installed() -> bool:
    return all(_program(name) for name in _PROGRAMS) and bool(list(Path("/usr/lib").glob(_SASL_MODULE)))


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


class Kdc:
    """A KDC with an empty realm. `environment` is what processes that use it need."""

    def __init__(self, directory: Path, port: int):
        self.directory = directory
        self.port = port
        self.environment = {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory / 'tickets'}",
            "KRB5RCACHEDIR": str(directory),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._write_configs()

    def _write_configs(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "krb5.conf").write_text(
            f"""[libdefaults]
  default_realm = {REALM}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  qualify_shortname = ""
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{self.port}
  }}
[domain_realm]
  localhost = {REALM}
"""
        )
        (self.directory / "kdc.conf").write_text(
            f"""[kdcdefaults]
  kdc_listen = 127.0.0.1:{self.port}
  kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
  {REALM} = {{
    database_name = {self.directory / "principal"}
    key_stash_file = {self.directory / "stash"}
    acl_file = {self.directory / "kadm5.acl"}
    supported_enctypes = aes256-cts:normal
  }}
[logging]
  kdc = FILE:{self.directory / "kdc.log"}
"""
        )

    def start(self) -> None:
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-password")
        program = _program("krb5kdc")
        assert program is not None
        with (self.directory / "kdc.err").open("wb") as errors:
            self._process = subprocess.Popen(
                [program, "-n", "-r", REALM],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except OSError:
                assert self._process.poll() is None, (self.directory / "kdc.err").read_text()
                assert time.monotonic() < deadline, "the KDC does not listen"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def add_principals(self, *names: str) -> None:
        """Creates principals with random keys."""
        self.run("kadmin.local", "-r", REALM, stdin="".join(f"addprinc -randkey {name}\n" for name in names))

    def keytab(self, name: str) -> Path:
        """Returns a new file with a new key of a principal."""
        path = self.directory / f"{name.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -q -k {path} {name}")
        return path

    def run(
        self, name: str, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kerberos's programs."""
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *arguments],
            env={**os.environ, **self.environment, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{name} failed: {done.stderr}"
        return done
