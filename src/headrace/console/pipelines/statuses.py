"""The status of running pipelines, as their drivers publish it. Pure.

The compacted topic `__headrace_pipelines` has a record per flow: the key `<pipeline>/<flow>`, and a JSON object as
value. A tombstone forgets the flow. Fields may be missing or new, and anybody who may write the topic may have
written them: what has an unexpected type counts as missing.

`Statuses` keeps the last status of each flow, and the last batches.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["STATUS_TOPIC", "FlowView", "Statuses"]

STATUS_TOPIC = "__headrace_pipelines"
LOST_AFTER_MS = 30_000
"""A flow that is neither stopped nor failed, and has not published for this long, has lost its driver."""
_BATCHES = 100
_MAX_FLOWS = 1000
_STATES = {"starting": "running", "running": "running", "stopped": "stopped", "failed": "failed"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18 else None


def _whole(value: object) -> int:
    number = _number(value)
    return 0 if number is None else int(number)


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _counts(value: object) -> dict[str, int]:
    return {name: _whole(count) for name, count in _mapping(value).items()}


@dataclass
class FlowView:
    """A flow: its last status, and its last batches, oldest first."""

    pipeline: str
    flow: str
    status: Mapping[str, Any]
    batches: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_BATCHES))

    def text(self, name: str) -> str | None:
        value = self.status.get(name)
        return value if isinstance(value, str) and value else None

    def number(self, name: str) -> float | None:
        return _number(self.status.get(name))

    def whole(self, name: str) -> int:
        return _whole(self.status.get(name))

    @property
    def sources(self) -> list[str]:
        """The source topics."""
        return sorted(set(_texts(self.status.get("source_topics"))))

    @property
    def output_topics(self) -> list[str]:
        return sorted(set(_texts(self.status.get("output_topics"))))

    @property
    def tables(self) -> list[str]:
        return sorted(set(_texts(self.status.get("tables"))))

    @property
    def dead_letter_topic(self) -> str | None:
        return self.text("dead_letter_topic")

    @property
    def topics(self) -> set[str]:
        """All topics that the status names."""
        found = {*self.sources, *self.output_topics}
        return found | {self.dead_letter_topic} if self.dead_letter_topic is not None else found

    @property
    def rows_out(self) -> dict[str, int]:
        return _counts(self.status.get("rows_out"))

    @property
    def reasons(self) -> dict[str, int]:
        """The dead letters of this run, by reason."""
        return _counts(self.status.get("dead_letters_by_reason"))

    def state(self, now_ms: int) -> str:
        """Returns running, stopped, failed or stale."""
        state = _STATES.get(self.text("state") or "", "stale")
        if state == "running" and now_ms - self.whole("updated_ms") > LOST_AFTER_MS:
            return "stale"
        return state

    def update(self, status: Mapping[str, Any]) -> None:
        """Takes a newer status."""
        if status.get("run_id") != self.status.get("run_id"):
            self.batches.clear()
        self.status = status
        self._add_batch(_mapping(status.get("last_batch")))

    def _add_batch(self, batch: Mapping[str, Any]) -> None:
        if not batch:
            return
        shown = {
            "flow": self.flow,
            "batch_id": _whole(batch.get("id")),
            "time_ms": _whole(batch.get("started_ms")),
            "rows": _whole(batch.get("rows_in")),
            "seconds": _whole(batch.get("duration_ms")) / 1000,
            "lag": None if self.number("lag") is None else self.whole("lag"),
            "phases_ms": _counts(batch.get("phases_ms")),
        }
        if self.batches and self.batches[-1]["batch_id"] == shown["batch_id"]:
            self.batches[-1] = shown
        else:
            self.batches.append(shown)


class Statuses:
    """All flows by key. `generation` counts changes."""

    def __init__(self) -> None:
        self._flows: dict[str, FlowView] = {}
        self.generation = 0

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Takes a record of the topic. Ignores records that are no status."""
        try:
            name = (key or b"").decode()
            status = None if value is None else json.loads(value, parse_constant=lambda _: None)
        except (UnicodeDecodeError, ValueError, RecursionError):
            return
        pipeline, _, flow = name.partition("/")
        if not pipeline or not flow:
            return
        if status is None:
            self.generation += self._flows.pop(name, None) is not None
            return
        if not isinstance(status, dict) or (name not in self._flows and len(self._flows) >= _MAX_FLOWS):
            return
        if name not in self._flows:
            self._flows[name] = FlowView(pipeline, flow, {})
        self._flows[name].update(status)
        self.generation += 1

    def clear(self) -> None:
        """Forgets everything: the topic was deleted."""
        self.generation += bool(self._flows)
        self._flows.clear()

    def pipelines(self) -> dict[str, list[FlowView]]:
        """Returns the flows by pipeline."""
        found: dict[str, list[FlowView]] = {}
        for _, flow in sorted(self._flows.items()):
            found.setdefault(flow.pipeline, []).append(flow)
        return found

    def flows(self) -> Iterable[FlowView]:
        return list(self._flows.values())
