"""The certificates of a broker's listeners with TLS, which can be reloaded while connections stay open.

- A change of `listener.name.<listener>.ssl.keystore.*` or `ssl.truststore.*` is checked before it is stored: what a
  listener would use must be readable, and may not have another subject or lack alternative names, unless
  `ssl.allow.dn.changes` or `ssl.allow.san.changes` permit it. On listeners that connect brokers, this broker must also
  accept its own certificate.
- Changed files are read again by `reload_changed_files`. If they are invalid, the log says why and the old ones stay.
- New connections get the new certificates.

Owned by the broker's loop. `check`, `reload` and the constructor read files.
"""

import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.config.listener_security import ListenerSecurity
from headrace.common.errors import ConfigError
from headrace.common.principal import ANONYMOUS, USER, Principal
from headrace.net.tls_channel import TlsChannel
from headrace.security.distinguished_names import certificate_names
from headrace.security.key_stores import KeyStore, load_keystore, store_files
from headrace.security.principal_mapping import PrincipalMapper
from headrace.security.tls_context import client_context, server_context

_logger = logging.getLogger(__name__)

_PRINCIPAL_CACHE_SIZE = 1000
_MOST_FLIGHTS = 10

FileStates = tuple[tuple[int, int, int] | None, ...]


class TlsListener:
    """One listener: its contexts, and who the owners of client certificates are."""

    def __init__(self, name: str, values: Mapping[str, Any]):
        """`values`: of the `ssl.*` configs. Raises ConfigError."""
        self.name = name
        self.values = values
        prefix = f"listener.name.{name.lower()}."
        self.files = file_states(values)
        """The state of the files before they were read."""
        self.keystore = _keystore(values, prefix)
        self.context = server_context(values, self.keystore, prefix)
        """The context of new connections."""
        self._mapper = PrincipalMapper(values["ssl.principal.mapping.rules"])
        self._principals: dict[bytes, Principal] = {}
        self._prefix = prefix

    def principal(self, certificate: bytes | None) -> Principal:
        """Returns who the owner of a certificate is. Raises HeadraceError if no mapping rule matches its name."""
        if certificate is None:
            return ANONYMOUS
        principal = self._principals.get(certificate)
        if principal is None:
            if len(self._principals) >= _PRINCIPAL_CACHE_SIZE:
                self._principals.clear()
            name = self._mapper.name(certificate_names(certificate).subject)
            principal = self._principals[certificate] = Principal(USER, name)
        return principal

    def client_context(self) -> ssl.SSLContext:
        """Returns the context of connections to this listener of other brokers. Raises ConfigError."""
        return client_context(self.values, self.keystore, self._prefix)

    def check_successor(self, new: "TlsListener") -> None:
        """Raises ConfigError if this listener may not get those certificates at run time."""
        before, after = (certificate_names(each.keystore.certificate) for each in (self, new))
        if before.subject != after.subject and not new.values["ssl.allow.dn.changes"]:
            raise ConfigError(
                f"Listener {self.name}: the new certificate has the distinguished name {after.subject!r} instead of "
                f"{before.subject!r}: expected the same (ssl.allow.dn.changes)"
            )
        if not before.alternative_names <= after.alternative_names and not new.values["ssl.allow.san.changes"]:
            raise ConfigError(
                f"Listener {self.name}: the new certificate lacks alternative names of the old one: expected all of "
                "them (ssl.allow.san.changes)"
            )


class TlsListeners:
    """All listeners with TLS."""

    def __init__(self, security: Mapping[str, ListenerSecurity], login_listeners: Iterable[str], label: str):
        """`login_listeners`: those through which brokers connect to each other. `label`: the broker, for the log.

        Raises ConfigError.
        """
        self._label = label
        self._login_listeners = frozenset(login_listeners)
        self.listeners: dict[str, TlsListener] = {}
        """By name. The objects are replaced when certificates change."""
        self._client_contexts: dict[str, ssl.SSLContext] = {}
        self._refused: dict[str, FileStates] = {}
        """The states of changed files that are invalid, so that the log says it once."""
        self._replace(self._load(security))

    def client_context(self, name: str) -> ssl.SSLContext:
        """Returns the current context of connections to other brokers."""
        return self._client_contexts[name]

    def check(self, security: Mapping[str, ListenerSecurity]) -> None:
        """Raises ConfigError if the listeners cannot get these settings at run time. Changes nothing."""
        self._changed(security)

    def apply(self, security: Mapping[str, ListenerSecurity]) -> None:
        """Applies settings that have changed. If they are invalid, the old certificates stay."""
        try:
            self._replace(self._changed(security))
        except ConfigError as error:
            _logger.error("%s: keeping the old certificates: %s", self._label, error)

    def read_file_states(self) -> dict[str, FileStates]:
        """Returns the current states of the files of listeners that have changed. May run in a thread."""
        states = {name: file_states(listener.values) for name, listener in list(self.listeners.items())}
        return {
            name: state
            for name, state in states.items()
            if state != self.listeners[name].files and state != self._refused.get(name)
        }

    def reload_changed_files(self, changed: Mapping[str, FileStates]) -> None:
        """Reads files again that have changed according to `read_file_states`."""
        for name, states in changed.items():
            listener = self.listeners[name]
            try:
                new = TlsListener(name, listener.values)
                self._check_new(new)
                self._replace({name: new})
                self._refused.pop(name, None)
            except ConfigError as error:
                self._refused[name] = states
                _logger.error("%s: a file has changed, but keeping the old certificates: %s", self._label, error)

    # ---- loading

    @staticmethod
    def _load(security: Mapping[str, ListenerSecurity]) -> dict[str, TlsListener]:
        return {name: TlsListener(name, each.values) for name, each in security.items() if each.uses_tls}

    def _changed(self, security: Mapping[str, ListenerSecurity]) -> dict[str, TlsListener]:
        """Returns listeners whose settings have changed, with their new certificates."""
        changed: dict[str, ListenerSecurity] = {}
        for name, each in security.items():
            if each.uses_tls and _tls_values(each.values) != _tls_values(self.listeners[name].values):
                changed[name] = each
        loaded = self._load(changed)
        for new in loaded.values():
            self._check_new(new)
        return loaded

    def _check_new(self, new: TlsListener) -> None:
        self.listeners[new.name].check_successor(new)
        if new.name in self._login_listeners:
            _check_accepts_itself(new)

    def _replace(self, loaded: Mapping[str, TlsListener]) -> None:
        contexts = {name: new.client_context() for name, new in loaded.items() if name in self._login_listeners}
        replaced = [name for name in loaded if name in self.listeners]
        self.listeners.update(loaded)
        self._client_contexts.update(contexts)
        for name in replaced:
            _logger.info("%s: listener %s has new certificates, for new connections", self._label, name)


def file_states(values: Mapping[str, Any]) -> FileStates:
    """Returns what shows that a listener's files have changed: inode, size and time of each."""
    states: list[tuple[int, int, int] | None] = []
    for path in store_files(values):
        try:
            found = os.stat(path)
        except OSError:
            states.append(None)
        else:
            states.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(states)


def _keystore(values: Mapping[str, Any], prefix: str) -> KeyStore:
    keystore = load_keystore(values, prefix)
    if keystore is None:
        raise ConfigError(
            f"{prefix}ssl.keystore.location is missing: a listener with TLS needs a file with its private key and its "
            f"certificate (or {prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain)"
        )
    return keystore


def _tls_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name.startswith("ssl.")}


def _check_accepts_itself(listener: TlsListener) -> None:
    """Raises ConfigError unless a handshake of the listener with itself succeeds, apart from the host name."""
    context = listener.client_context()
    context.check_hostname = False
    client = TlsChannel(context, server_side=False)
    server = TlsChannel(listener.context, server_side=True)
    try:
        data, client_done, server_done = b"", False, False
        for _ in range(_MOST_FLIGHTS):
            client_done = client.handshake(data)
            server_done = server.handshake(client.take_output())
            data = server.take_output()
            if client_done and server_done:
                return
    except ssl.SSLError as error:
        raise ConfigError(
            f"Listener {listener.name}: brokers would not accept the new certificate: {error}. Add its authority to "
            "the truststores of all brokers first"
        ) from None
