"""Decodes `__transaction_state` with Kafka's tool."""

import json
from typing import Any

from tests.support.apache_kafka.broker import DumpResult


def last_states(dumped: DumpResult) -> dict[str, dict[str, Any]]:
    """Returns the last record of each transactional id, as the tool decodes it."""
    assert dumped.problems == []
    states: dict[str, dict[str, Any]] = {}
    for record in dumped.records:
        key = json.loads(str(record.key))["data"]["transactionalId"]
        payload = json.loads(str(record.payload))
        if payload is None:
            states.pop(key, None)
        else:
            states[key] = payload["data"]
    return states
