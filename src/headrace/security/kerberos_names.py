"""User names of Kerberos principals: the rules in `sasl.kerberos.principal.to.local.rules`, in Kafka's syntax.

    DEFAULT                                      the first part, if the realm is the default realm
    RULE:[1:$1@$0](.*@EXAMPLE\\.COM)s/@.*//L     for principals with one part: make a text from the realm ($0) and the
                                                 parts ($1, $2); it must match (...); replace; then lower case (L)

The first rule that matches is used. A principal that no rule matches has no user name, and cannot log in.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.common.errors import ConfigError

__all__ = ["KerberosNames", "NoRuleError"]

KEY = "sasl.kerberos.principal.to.local.rules"

_PRINCIPAL = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$(\d+)")
_JAVA_REPLACEMENT = re.compile(r"\\(?P<escaped>.)|\$(?P<group>\d)|(?P<text>[^\\$]+)|(?P<wrong>.)", re.DOTALL)
_MAX_PARTS = 2


class NoRuleError(Exception):
    """No rule makes a user name from a principal."""


class KerberosNames:
    """The rules of one broker."""

    def __init__(self, rules: Iterable[str], default_realm: str):
        """Raises ConfigError for rules that are not valid."""
        self._rules = tuple(None if text.strip() == "DEFAULT" else _parse(text.strip()) for text in rules)
        self._default_realm = default_realm

    def user(self, principal: str) -> str:
        """Returns the user name of a principal such as `alice@EXAMPLE.COM`. Raises NoRuleError."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            if "@" in principal or "/" in principal:
                raise NoRuleError(f"{principal!r} is not a Kerberos principal with at most two parts and a realm")
            return principal
        parts = [match["realm"], match["first"]] + ([] if match["second"] is None else [match["second"]])
        for rule in self._rules:
            if rule is None:
                if match["realm"] == self._default_realm and match["first"]:
                    return match["first"]
            elif user := rule.apply(parts):
                return user
        raise NoRuleError(f"no rule of {KEY} applies to {principal!r} (default realm {self._default_realm!r})")


@dataclass(frozen=True, slots=True)
class _Rule:
    count: int
    """How many parts the principal must have."""
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    replacements: int
    """0 for all."""
    case: str | None

    def apply(self, parts: list[str]) -> str | None:
        """Returns the user name, or None if the rule does not match. `parts` begins with the realm."""
        if len(parts) - 1 != self.count:
            return None
        name = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        if self.pattern is not None:
            name = self.pattern.sub(self.replacement, name, count=self.replacements)
        if "/" in name or "@" in name:
            raise NoRuleError(f"a rule of {KEY} makes {name!r}, which is not a simple name")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def _parse(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{KEY}: {text!r} is not a rule: expected DEFAULT or RULE:[n:format](regex)s/pattern/replacement/g, "
            "with /L or /U at the end for lower or upper case"
        )
    count = int(match["count"])
    numbers = [int(number) for number in _PARAMETER.findall(match["format"])]
    if not 1 <= count <= _MAX_PARTS or any(number > count for number in numbers):
        raise ConfigError(f"{KEY}: {text!r}: principals have 1 or {_MAX_PARTS} parts, and $n must be one of them")
    pattern = _compile(match["pattern"], text)
    return _Rule(
        count,
        match["format"],
        _compile(match["match"], text),
        pattern,
        "" if pattern is None else _python_replacement(match["replacement"], pattern.groups, text),
        0 if match["all"] else 1,
        match["case"],
    )


def _compile(pattern: str | None, rule: str) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{KEY}: {rule!r}: {pattern!r} is not a regular expression: {error}") from None


def _python_replacement(replacement: str, groups: int, rule: str) -> str:
    """Translates Java's `$1` and `\\x`."""
    parts = []
    for found in _JAVA_REPLACEMENT.finditer(replacement):
        if found["wrong"] or (found["group"] and int(found["group"]) > groups):
            raise ConfigError(f"{KEY}: {rule!r}: {replacement!r} refers to a group that does not exist")
        if found["group"]:
            parts.append(rf"\g<{found['group']}>")
        else:
            parts.append((found["escaped"] or found["text"]).replace("\\", r"\\"))
    return "".join(parts)
