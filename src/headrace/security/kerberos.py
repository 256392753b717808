"""GSSAPI (RFC 4752): Kerberos tickets in place of passwords, through the package `gssapi` and MIT's libraries.

client                                              broker
context token (AP-REQ)                       -->    verifies it with the key in its keytab
                                             <--    context token (AP-REP): the broker knows the key, too
(empty)                                      -->
                                             <--    wrap(layers 1 byte, maximum size 3 bytes)
wrap(layer, maximum size, authorization id)  -->    authenticated

The only security layer is "none" (1): TLS encrypts.

- The broker's user comes from the ticket. The authorization id is ignored, as in Kafka: clients put different things
  into it, and a client that names somebody else would get that one's rights (CVE-2017-12610).
- A client with a keytab gets tickets, and new ones when they expire, from the KDC. A client with a ticket cache uses
  the tickets that `kinit` put there.
- The broker needs no KDC. It reads its keytab at each login, so new keys take effect at once.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError, SaslAuthenticationFailedError
from headrace.common.principal import USER, Principal
from headrace.security.jaas import JaasEntry
from headrace.security.kerberos_names import KerberosNames, NoRuleError
from headrace.security.sasl import GSSAPI

__all__ = ["GssapiClient", "GssapiServer", "KerberosAcceptor", "KerberosIdentity", "default_realm"]

_logger = logging.getLogger(__name__)

_NO_LAYER = 1
_MAX_BUFFER = 65536
"""The maximum size that Kafka's brokers offer. Without a layer it has no meaning."""
_OFFER_BYTES = 4
_IGNORED_OPTIONS = frozenset(
    {"storeKey", "doNotPrompt", "refreshKrb5Config", "renewTGT", "debug", "isInitiator", "useFirstPass"}
)
"""Options of Java's login module that change nothing here: passwords are never asked for, keys are read when needed."""
_OPTIONS = frozenset({"useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName"})
_FAILED = "Authentication failed: the Kerberos ticket is not valid for this broker"


def load_gssapi() -> Any:
    """Returns the package `gssapi`. Raises ConfigError if it is missing."""
    try:
        import gssapi
    except ImportError as error:
        raise ConfigError(
            "The SASL mechanism GSSAPI needs the package gssapi, which Debian's libkrb5-dev is needed to build: "
            f"pip install 'headrace[kerberos]' ({error})"
        ) from None
    return gssapi


def default_realm() -> str:
    """Returns the default realm in krb5.conf. Raises ConfigError if there is none."""
    gssapi = load_gssapi()
    try:
        name = gssapi.Name("user", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError as error:
        raise ConfigError(f"Kerberos has no default realm (default_realm in krb5.conf): {_text(error)}") from None
    return str(name).rpartition("@")[2]


@dataclass(frozen=True)
class KerberosIdentity:
    """Whose key or tickets a client or a broker uses."""

    principal: str | None
    keytab: str | None
    """The file with the key. None: the ticket cache."""
    ticket_cache: str | None
    """None: Kerberos's default."""
    service_name: str

    @classmethod
    def make(
        cls,
        jaas: JaasEntry | None,
        service_name: str | None,
        principal: str | None = None,
        keytab: str | None = None,
    ) -> "KerberosIdentity":
        """Creates it from `sasl.jaas.config`, or else from `sasl.kerberos.*`. Raises ConfigError."""
        if jaas is None:
            identity = cls(principal, keytab, None, service_name or "kafka")
        else:
            if principal or keytab:
                raise ConfigError(
                    "Set either sasl.jaas.config, or sasl.kerberos.principal and sasl.kerberos.keytab, not both"
                )
            identity = cls._from_jaas(jaas, service_name)
        if identity.keytab is not None:
            if not identity.principal:
                raise ConfigError("A keytab needs the principal whose key it has (principal, sasl.kerberos.principal)")
            _check_keytab(identity.keytab)
        return identity

    @classmethod
    def _from_jaas(cls, jaas: JaasEntry, service_name: str | None) -> "KerberosIdentity":
        options: Mapping[str, str] = jaas.options
        if unknown := sorted(set(options) - _OPTIONS - _IGNORED_OPTIONS):
            raise ConfigError(
                f"sasl.jaas.config: {jaas.login_module} has no options {', '.join(unknown)} here: "
                f"expected some of {', '.join(sorted(_OPTIONS))}"
            )
        own_service = options.get("serviceName")
        if own_service and service_name and service_name not in (own_service, "kafka"):
            raise ConfigError(
                f"sasl.jaas.config has serviceName={own_service}, but sasl.kerberos.service.name is {service_name}"
            )
        service = own_service or service_name or "kafka"
        if jaas.is_true("useKeyTab"):
            return cls(options.get("principal"), jaas.require("keyTab"), None, service)
        if not jaas.is_true("useTicketCache"):
            raise ConfigError(
                'sasl.jaas.config: set useKeyTab=true keyTab="<file>" principal="<name>", or useTicketCache=true'
            )
        return cls(options.get("principal"), None, options.get("ticketCache"), service)


def _check_keytab(path: str) -> None:
    try:
        with Path(path.removeprefix("FILE:")).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"The keytab {path} cannot be read: {error.strerror}") from None


class KerberosAcceptor:
    """The broker's key and the rules for names: what all exchanges of a listener share."""

    def __init__(self, identity: KerberosIdentity, rules: tuple[str, ...]):
        """Raises ConfigError if the key is missing."""
        if identity.keytab is None:
            raise ConfigError(
                "The SASL mechanism GSSAPI needs the broker's key: set sasl.jaas.config="
                'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="<file>" '
                'principal="kafka/<host>@<realm>";'
            )
        self._gssapi = load_gssapi()
        self._names = KerberosNames(rules, default_realm())
        principal = identity.principal
        try:
            name = None
            if principal != "*":
                name = self._gssapi.Name(principal, self._gssapi.NameType.kerberos_principal)
            self._credentials = self._gssapi.Credentials(
                name=name,
                usage="accept",
                store={"keytab": identity.keytab},
                mechs=[self._gssapi.MechType.kerberos],
            )
        except self._gssapi.exceptions.GSSError as error:
            raise ConfigError(f"The keytab {identity.keytab} has no key of {principal}: {_text(error)}") from None

    def new_context(self) -> Any:
        return _without_error_tokens(self._gssapi.SecurityContext(creds=self._credentials, usage="accept"))

    @property
    def error(self) -> type[Exception]:
        """The exception of failed steps."""
        kind: type[Exception] = self._gssapi.exceptions.GSSError
        return kind

    def user(self, principal: str) -> str:
        """Raises NoRuleError."""
        return self._names.user(principal)


class GssapiServer:
    """The broker's side."""

    expires_at_ms = None

    def __init__(self, acceptor: KerberosAcceptor):
        self._acceptor = acceptor
        self._context: Any = acceptor.new_context()
        self._offered = False
        self._principal: Principal | None = None

    @property
    def complete(self) -> bool:
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        assert self._principal is not None
        return self._principal

    def respond(self, message: bytes) -> bytes:
        if self.complete:
            raise SaslAuthenticationFailedError("Invalid SASL/GSSAPI message: authentication is complete")
        try:
            if self._offered:
                self._accept_choice(message)
                return b""
            if not self._context.complete:
                token = bytes(self._context.step(message) or b"")
                if token or not self._context.complete:
                    return token
            elif message:
                raise SaslAuthenticationFailedError("Invalid SASL/GSSAPI message: expected an empty message")
            self._offered = True
            offer = bytes((_NO_LAYER,)) + _MAX_BUFFER.to_bytes(3)
            return bytes(self._context.wrap(offer, encrypt=False).message)
        except self._acceptor.error as error:
            _logger.info("Client sent a Kerberos ticket that is not valid: %s", _text(error))
            raise SaslAuthenticationFailedError(_FAILED) from None

    def _accept_choice(self, message: bytes) -> None:
        choice = bytes(self._context.unwrap(message).message)
        if len(choice) < _OFFER_BYTES or choice[0] != _NO_LAYER:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client chose a security layer that was not offered (sasl.qop must be auth)"
            )
        client = str(self._context.initiator_name)
        try:
            self._principal = Principal(USER, self._acceptor.user(client))
        except NoRuleError as error:
            raise SaslAuthenticationFailedError(f"Authentication failed: {error}") from None
        self._context = None


class GssapiClient:
    """The client's side. `host` is the one in the broker's principal."""

    name = GSSAPI
    blocking = True

    def __init__(self, identity: KerberosIdentity, host: str, cache: str):
        """`cache`: the name of the memory that keeps the tickets of the login, if it has a keytab."""
        self._gssapi = load_gssapi()
        self._identity = identity
        self._service = f"{identity.service_name}@{host}"
        self._cache = cache
        self._context: Any = None
        self._chosen = False
        self.complete = False

    def initial_response(self) -> bytes:
        gssapi = self._gssapi
        try:
            flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
            self._context = _without_error_tokens(
                gssapi.SecurityContext(
                    name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
                    creds=self._credentials(),
                    flags=flags,
                    mech=gssapi.MechType.kerberos,
                    usage="initiate",
                )
            )
            return bytes(self._context.step() or b"")
        except gssapi.exceptions.GSSError as error:
            raise self._no_ticket(error) from None

    def _credentials(self) -> Any:
        identity, gssapi = self._identity, self._gssapi
        store = {}
        if identity.keytab is not None:
            store = {"client_keytab": identity.keytab, "ccache": self._cache}
        elif identity.ticket_cache is not None:
            store = {"ccache": identity.ticket_cache}
        name = None
        if identity.principal:
            name = gssapi.Name(identity.principal, gssapi.NameType.kerberos_principal)
        mechs = [gssapi.MechType.kerberos]
        if not store:
            return gssapi.Credentials(name=name, usage="initiate", mechs=mechs)
        return gssapi.Credentials(name=name, usage="initiate", store=store, mechs=mechs)

    def _no_ticket(self, error: Exception) -> SaslAuthenticationFailedError:
        identity = self._identity
        source = f"the keytab {identity.keytab}" if identity.keytab else "the ticket cache (run kinit first)"
        return SaslAuthenticationFailedError(
            f"Kerberos gives {identity.principal or 'the client'} no ticket for {self._service}, with {source}: "
            f"{_text(error)}"
        )

    def respond(self, challenge: bytes) -> bytes:
        if self._chosen:
            if challenge:
                raise SaslAuthenticationFailedError("The broker sent an unexpected message in the mechanism GSSAPI")
            self.complete = True
            self._context = None
            return b""
        try:
            if not self._context.complete:
                return bytes(self._context.step(challenge) or b"")
            offer = self._context.unwrap(challenge).message
            if len(offer) < _OFFER_BYTES or not offer[0] & _NO_LAYER:
                raise SaslAuthenticationFailedError(
                    "The broker requires a security layer of GSSAPI: only sasl.qop=auth is supported, use TLS"
                )
            self._chosen = True
            return bytes(self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), encrypt=False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise SaslAuthenticationFailedError(
                f"The broker is not the service {self._service}: {_text(error)}"
            ) from None


def _without_error_tokens(context: Any) -> Any:
    """A failed step raises its error. By default the other side gets it as a token, and only the next step raises."""
    context.__DEFER_STEP_ERRORS__ = False
    return context


def _text(error: Exception) -> str:
    """Returns the messages of a GSSError."""
    generate = getattr(error, "gen_message", None)
    return str(error if generate is None else generate())
