"""Kafka's JAAS syntax, the value of `sasl.jaas.config`: one login module with its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="secret" user_alice="secret";

Values are quoted with " or ', with the escapes of Java, or are words. `//` and `/* */` start comments. Errors name the
position and never show the text: any part of it may be a password.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.common.errors import ConfigError
from headrace.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

__all__ = ["LOGIN_MODULES", "JaasEntry", "parse_jaas", "parse_jaas_for"]

KEY = "sasl.jaas.config"

_SECURITY = "org.apache.kafka.common.security."
_SCRAM_MODULES = (_SECURITY + "scram.ScramLoginModule",)
LOGIN_MODULES: dict[str, tuple[str, ...]] = {
    PLAIN: (_SECURITY + "plain.PlainLoginModule",),
    SCRAM_SHA_256: _SCRAM_MODULES,
    SCRAM_SHA_512: _SCRAM_MODULES,
    OAUTHBEARER: (_SECURITY + "oauthbearer.OAuthBearerLoginModule",),
    GSSAPI: ("com.sun.security.auth.module.Krb5LoginModule",),
}
"""The login modules of each mechanism. No other class is accepted: others made Kafka execute foreign code
(CVE-2023-25194)."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_QUOTED = r"(?:[^{0}\\\n]|\\.)*"
_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[\w.$\-]+)"
    rf'|"(?P<double>{_QUOTED.format(chr(34))})"'
    rf"|'(?P<single>{_QUOTED.format(chr(39))})'"
    r"|(?P<sign>[=;])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{1,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options, such as username and password."""

    login_module: str
    options: dict[str, str] = field(repr=False)

    def require(self, option: str) -> str:
        """Returns the value of an option that must not be missing or empty."""
        value = self.options.get(option)
        if not value:
            raise ConfigError(f"{KEY}: the option {option} of {self.login_module} is missing or empty")
        return value

    def is_true(self, option: str) -> bool:
        return self.options.get(option, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """word, quoted, sign, or end."""
    text: str
    start: int


def parse_jaas(text: str) -> JaasEntry:
    """Parses one login module. Raises ConfigError."""
    tokens = _tokens(text)

    def fail(token: _Token, expected: str) -> ConfigError:
        found = "the end of the text" if token.kind == "end" else f"a {token.kind}"
        return _error(text, token.start, f"expected {expected}, not {found}")

    module = next(tokens)
    if module.kind == "end":
        raise ConfigError(f"{KEY} is empty: expected a login module with its options")
    if module.kind != "word":
        raise fail(module, "the class name of a login module")
    if not any(module.text in names for names in LOGIN_MODULES.values()):
        known = sorted({name for names in LOGIN_MODULES.values() for name in names})
        raise _error(text, module.start, f"unknown login module: expected one of {', '.join(known)}")
    flag = next(tokens)
    if flag.kind != "word" or flag.text.lower() not in _FLAGS:
        raise fail(flag, f"the control flag after the login module, one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while (token := next(tokens)).text != ";" or token.kind != "sign":
        if token.kind == "end":
            raise _error(text, token.start, "the login module must end with a semicolon")
        if token.kind == "sign":
            raise fail(token, "the name of an option, or a semicolon")
        if token.text in options:
            raise _error(text, token.start, "an option is set twice")
        equals = next(tokens)
        if equals.kind != "sign" or equals.text != "=":
            raise fail(equals, "'=' after the name of an option (quote values with spaces or special characters)")
        value = next(tokens)
        if value.kind not in ("word", "quoted"):
            raise fail(value, "the value of an option")
        options[token.text] = value.text
    if (extra := next(tokens)).kind != "end":
        raise _error(text, extra.start, "only one login module is allowed")
    return JaasEntry(module.text, options)


def parse_jaas_for(mechanism: str, text: str) -> JaasEntry:
    """Parses the login module of a mechanism. Raises ConfigError, also for the module of another mechanism."""
    entry = parse_jaas(text)
    if entry.login_module not in LOGIN_MODULES[mechanism]:
        raise ConfigError(
            f"{KEY}: {entry.login_module} is not for the mechanism {mechanism}: use {LOGIN_MODULES[mechanism][0]}"
        )
    return entry


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            problem = "unexpected character: quote the value of an option"
            if text[position] in "\"'":
                problem = "the quoted text that starts here does not end on its line"
            raise _error(text, position, problem)
        kind = match.lastgroup or ""
        if kind in ("single", "double"):
            yield _Token("quoted", _ESCAPE.sub(_unescape, match[kind]), position)
        elif kind != "space":
            yield _Token(kind, match[kind], position)
        position = match.end()
    while True:
        yield _Token("end", "", len(text))


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)


def _error(text: str, position: int, problem: str) -> ConfigError:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return ConfigError(f"{KEY}, line {line}, column {column}: {problem}")
