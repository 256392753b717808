"""All checks of a history, and what they found."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.jepsen.checker.cycles import find_cycles
from tests.jepsen.checker.findings import Finding
from tests.jepsen.checker.history import Op, number_ops
from tests.jepsen.checker.polls import find_int_poll_anomalies, find_poll_anomalies
from tests.jepsen.checker.reads import (
    find_aborted_reads,
    find_lost_writes,
    find_precommitted_reads,
    find_unknown_values,
    find_unseen,
)
from tests.jepsen.checker.sends import find_int_send_anomalies, find_nonmonotonic_sends
from tests.jepsen.checker.versions import Analysis, find_duplicates, find_inconsistent_offsets

CHECKS: tuple[Callable[[Analysis], Iterator[Finding]], ...] = (
    find_inconsistent_offsets,
    find_duplicates,
    find_unknown_values,
    find_aborted_reads,
    find_precommitted_reads,
    find_lost_writes,
    find_unseen,
    find_int_poll_anomalies,
    find_poll_anomalies,
    find_int_send_anomalies,
    find_nonmonotonic_sends,
    find_cycles,
)


@dataclass(frozen=True)
class Verdict:
    findings: list[Finding]

    @property
    def is_valid(self) -> bool:
        return not self.anomalies

    @property
    def anomalies(self) -> dict[str, int]:
        """How often each anomaly was found that Kafka's model does not allow."""
        return dict(Counter(finding.anomaly for finding in self.findings if not finding.is_allowed))

    @property
    def allowed(self) -> dict[str, int]:
        return dict(Counter(finding.anomaly for finding in self.findings if finding.is_allowed))

    def describe(self, examples: int = 5) -> str:
        """Returns the anomalies with some examples each."""
        lines = [f"valid: {self.is_valid}; allowed: {self.allowed or 'none'}"]
        for anomaly, count in self.anomalies.items():
            lines.append(f"{anomaly}: {count}")
            found = [each for each in self.findings if each.anomaly == anomaly and not each.is_allowed]
            lines += [f"    {finding.text}" for finding in found[:examples]]
        return "\n".join(lines)


def check(history: list[Op]) -> Verdict:
    analysis = Analysis(number_ops(history))
    return Verdict([finding for find in CHECKS for finding in find(analysis)])
