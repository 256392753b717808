"""`ssl.principal.mapping.rules`: from the distinguished name of a client's certificate to its principal.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*?),.*$/$1@example/,DEFAULT

The first rule whose pattern matches the whole name wins. `$1` is the first group of the pattern, `L` and `U` convert to
lower and upper case, and `DEFAULT` is the whole name. A backslash before `/` makes it a part of the pattern.
"""

import re
from dataclasses import dataclass

from headrace.common.errors import ConfigError, HeadraceError

__all__ = ["NoMatchingRuleError", "PrincipalMapper"]

_KEY = "ssl.principal.mapping.rules"
_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$(?P<number>\d+)|\$\{(?P<name>\w+)\}", re.DOTALL)


class NoMatchingRuleError(HeadraceError):
    """No rule matches a distinguished name, so its owner has no principal."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = _REFERENCE.sub(lambda reference: _resolve(reference, match), self.replacement)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: str = "DEFAULT"):
        """Raises ConfigError."""
        self._text = rules
        self._rules = _parse(rules)

    def name(self, distinguished_name: str) -> str:
        """Returns the name of the principal. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of {_KEY} matches {distinguished_name!r}: {self._text}")


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    text = text.strip() or "DEFAULT"
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"{_KEY} has an invalid rule at {text[position:]!r}: expected DEFAULT or RULE:pattern/replacement/, "
                "with L or U at its end for lower or upper case"
            )
        position = match.end()
        rules.append(_Rule() if match["default"] else _rule(match))
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    try:
        # Java writes named groups as (?<name>...).
        pattern = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", match["pattern"]))
    except re.error as error:
        raise ConfigError(f"{_KEY}: {match['pattern']!r} is not a regular expression: {error}") from None
    return _Rule(pattern, match["replacement"], match["case"])


def _resolve(reference: re.Match[str], match: re.Match[str]) -> str:
    if reference["escaped"] is not None:
        return reference["escaped"]
    if reference["name"] is not None:
        return match[reference["name"]] or "" if reference["name"] in match.re.groupindex else reference[0]
    # As in Java, more digits belong to the number only while there are so many groups; without the group it is text.
    digits = reference["number"]
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= match.re.groups:
            return (match[int(digits[:length])] or "") + digits[length:]
    return reference[0]
