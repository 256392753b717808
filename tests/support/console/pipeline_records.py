"""Statuses and dead letters as the runner of pipelines writes them."""

import json
from typing import Any


def status(pipeline: str = "shop", flow: str = "events", **fields: Any) -> dict[str, Any]:
    """Returns the status of a running flow."""
    return {
        "version": 1,
        "pipeline": pipeline,
        "flow": flow,
        "state": "running",
        "error": None,
        "restarts": 0,
        "run_id": "run-1",
        "host": "worker-1",
        "ui_url": None,
        "source_topics": ["raw"],
        "output_topics": ["pages", "carts"],
        "tables": ["cart_table"],
        "dead_letter_topic": "dead",
        "settings": {"routes": ""},
        "started_ms": 1_000,
        "updated_ms": 60_000,
        "last_batch": {
            "id": 4,
            "started_ms": 59_000,
            "duration_ms": 500,
            "rows_in": 100,
            "phases_ms": {"addBatch": 400},
        },
        "rows_in": 1000,
        "rows_out": {"pages": 600, "carts": 200, "cart_table": 200},
        "rows_in_per_second": 50.0,
        "rows_out_per_second": 100.0,
        "lag": 7,
        "dead_letters": 3,
        "dead_letters_by_reason": {"not JSON": 2, "no id": 1},
        "figures": {"duplicates": 5},
        **fields,
    }


def dead_letter(reason: str, offset: int, value: str | None, **fields: Any) -> bytes:
    """Returns the value of a dead letter of partition 0 of topic `raw`."""
    letter = {
        "reason": reason,
        "topic": "raw",
        "partition": 0,
        "offset": offset,
        "timestamp": 5,
        "key": "k",
        "value": value,
    }
    return json.dumps({**letter, **fields}).encode()
