"""Documents of the console's API for a made-up cluster: a shop with three brokers, groups, transactions and pipelines.

The fake console (`fake_console.py`) serves them. Numbers are computed from names and the time, so that they move
slowly and two calls agree.
"""

import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

SHOP = [
    ("ods_traffic", 12, 2400.0),
    ("ods_business", 12, 860.0),
    ("dwd_page", 12, 1510.0),
    ("dwd_start", 6, 120.0),
    ("dwd_action", 12, 930.0),
    ("dwd_display", 12, 3100.0),
    ("dwd_error", 3, 4.2),
    ("dwd_order", 6, 48.0),
    ("dwd_payment", 6, 37.0),
    ("dwd_refund", 3, 1.9),
    ("dwd_coupon", 3, 12.0),
    ("dwd_comment", 3, 6.5),
    ("dws_traffic", 3, 15.0),
    ("dead_letters", 3, 0.8),
    ("clickstream.raw", 24, 5200.0),
    ("clickstream.sessions", 12, 310.0),
    ("billing.invoices", 6, 9.5),
    ("billing.payments", 6, 8.1),
    ("inventory.changes", 6, 77.0),
    ("search.queries", 12, 640.0),
    ("search.results", 12, 590.0),
    ("recommendations", 6, 210.0),
    ("mail.outbox", 3, 5.1),
    ("audit.log", 3, 14.0),
    ("__consumer_offsets", 50, 31.0),
    ("__transaction_state", 50, 6.0),
    ("__headrace_console", 1, 0.2),
]
GROUPS = [
    ("billing", "Stable", 3, 212, 0.9),
    ("warehouse-loader", "Stable", 6, 184_300, 74.0),
    ("recommendation-trainer", "Empty", 0, 4_820_511, 5230.0),
    ("search-indexer", "Stable", 4, 1_290, 1.8),
    ("fraud-detection", "Stable", 8, 87, 0.2),
    ("mail-sender", "PreparingRebalance", 2, 45, 6.1),
    ("spark-ods-dwd", "Empty", 0, 3_410, 1.4),
    ("spark-dws-traffic", "Empty", 0, 912, 2.2),
    ("audit-archive", "Stable", 1, 0, 0.0),
    ("inventory-sync", "Stable", 2, 0, 0.0),
    ("session-builder", "Stable", 12, 10_770, 3.3),
]
FLOWS = ["dwd_page", "dwd_action", "dwd_display", "dwd_order", "dwd_payment", "dwd_coupon"]
CITIES = ["Oslo", "Lisbon", "Nairobi", "Kyoto", "Lima", "Tallinn"]


def wave(name: str, at_ms: float, mean: float) -> float:
    """A number near `mean` that moves slowly."""
    phase = zlib.crc32(name.encode()) % 6283 / 1000
    minutes = at_ms / 60_000
    moves = (
        0.16 * math.sin(minutes / 7 + phase) + 0.07 * math.sin(minutes * 1.3 + 2 * phase) + 0.04 * math.sin(minutes * 6)
    )
    return max(0.0, mean * (1 + moves))


def topic_rows(now_ms: int, extra: int = 0, created: Sequence[tuple[str, int]] = ()) -> list[dict[str, Any]]:
    rows = [*SHOP, *((name, partitions, 0.0) for name, partitions in created)]
    rows += [(f"tenant-{number:05}.events", 2000 if number == 7 else 3, 0.4) for number in range(extra)]
    return [_topic(name, partitions, mean, now_ms) for name, partitions, mean in rows]


def _topic(name: str, partitions: int, mean: float, now_ms: int) -> dict[str, Any]:
    records = int(mean * 86_400 * 2.5)
    return {
        "name": name,
        "internal": name.startswith("__"),
        "partitions": partitions,
        "replication_factor": 3,
        "under_replicated": 2 if name == "clickstream.raw" else 0,
        "offline": 0,
        "messages_in_per_second": wave(name, now_ms, mean),
        "size_bytes": records * 3 * 212,
        "records": records,
        "groups": 1 + zlib.crc32(name.encode()) % 3,
    }


def topic(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    count = row["partitions"]
    partitions = [
        {
            "partition": number,
            "leader": 1 + number % 3,
            "leader_epoch": 4 + number % 2,
            "replicas": [1 + (number + step) % 3 for step in range(3)],
            "isr": [1 + (number + step) % 3 for step in range(2 if number < row["under_replicated"] else 3)],
            "offline": [],
            "start_offset": 1000 * number,
            "end_offset": 1000 * number + row["records"] // count,
            "size_bytes": row["size_bytes"] // count,
            "messages_in_per_second": row["messages_in_per_second"] / count,
            "reassigning": None,
        }
        for number in range(count)
    ]
    consuming = [
        {"group": name, "state": state, "lag": lag, "lag_seconds": seconds, "members": members}
        for name, state, members, lag, seconds in GROUPS[: row["groups"]]
    ]
    return {
        **row,
        "topic_id": "wH0mK3vYQdKcZr0zJrEw9Q",
        "operations": None,
        "partition_list": partitions,
        "consuming": consuming,
    }


def configs(changed: dict[str, str]) -> dict[str, Any]:
    known = [
        ("cleanup.policy", "delete", "list", "What happens to old segments: delete, compact, or both."),
        ("compression.type", "producer", "string", "The codec of the log; producer keeps what producers chose."),
        ("max.message.bytes", "1048588", "int", "The largest record batch, in bytes."),
        ("min.insync.replicas", "1", "int", "How many replicas must have a record before acks=all is answered."),
        (
            "retention.bytes",
            "-1",
            "long",
            "How large a partition may grow before old segments are deleted. -1: no limit.",
        ),
        ("retention.ms", "604800000", "long", "How long records are kept. -1: for ever."),
        ("segment.bytes", "1073741824", "int", "The size of a segment file."),
        (
            "unclean.leader.election.enable",
            "false",
            "boolean",
            "Whether a replica that is not in sync may become leader.",
        ),
    ]
    return {
        "configs": [
            {
                "name": name,
                "value": changed.get(name, default),
                "default": default,
                "source": "topic" if name in changed else "default",
                "is_default": name not in changed,
                "read_only": False,
                "sensitive": False,
                "type": kind,
                "documentation": text,
            }
            for name, default, kind, text in known
        ]
    }


def group_rows(now_ms: int, extra: int = 0) -> list[dict[str, Any]]:
    rows = GROUPS + [(f"tenant-{number:04}-reader", "Stable", 1, 3, 0.1) for number in range(extra)]
    return [
        {
            "group": name,
            "state": state,
            "type": "classic",
            "members": members,
            "topics": 1 + members % 3,
            "lag": int(wave(name, now_ms, lag)),
            "lag_seconds": round(wave(name, now_ms, seconds), 2),
            "consumed_per_second": wave(name + "c", now_ms, 140.0 * members),
            "drain_seconds": 0 if not lag else None if not members else lag / (35.0 * members),
            "coordinator": 1 + len(name) % 3,
        }
        for name, state, members, lag, seconds in rows
    ]


def group(row: dict[str, Any]) -> dict[str, Any]:
    members = [
        {
            "member_id": f"{row['group']}-{number}-4f1c2a6e",
            "instance_id": None,
            "client_id": f"{row['group']}-{number}",
            "host": f"/10.0.4.{20 + number}",
            "assignment": [{"topic": "ods_traffic", "partitions": list(range(number, 12, row["members"]))}],
        }
        for number in range(row["members"])
    ]
    partitions = [
        {
            "topic": "ods_traffic",
            "partition": number,
            "committed": 40_000_000 + number,
            "start_offset": 1000 * number,
            "metadata": "",
            "end_offset": 40_000_000 + number + row["lag"] // 12,
            "lag": row["lag"] // 12,
            "lag_seconds": row["lag_seconds"],
            "consumed_per_second": row["consumed_per_second"] / 12,
            "drain_seconds": row["drain_seconds"],
            "member_id": members[number % len(members)]["member_id"] if members else None,
        }
        for number in range(12)
    ]
    return {
        **row,
        "protocol": "consumer",
        "assignor": "range",
        "operations": None,
        "member_list": members,
        "partitions": partitions,
    }


def broker_rows(now_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "host": f"kafka-{number}.example.com",
            "port": 9092,
            "rack": f"zone-{'abc'[number - 1]}",
            "is_controller": number == 2,
            "reachable": True,
            "error": None,
            "leaders": 96 + number,
            "replicas": 291,
            "size_bytes": 412_000_000_000 + number * 10**9,
            "total_bytes": 10**12,
            "usable_bytes": 10**12 - 560_000_000_000 - 160 * 10**9 * (number == 3),
            "connections": 180 + 9 * number,
            "bytes_in_per_second": wave(f"in{number}", now_ms, 1.31e6),
            "bytes_out_per_second": wave(f"out{number}", now_ms, 4.4e6),
            "messages_in_per_second": wave(f"m{number}", now_ms, 5200),
            "version": "3.9",
        }
        for number in (1, 2, 3)
    ]


def broker(row: dict[str, Any]) -> dict[str, Any]:
    apis = [
        ("Produce", 820.0, 0.4, 1.9, 4.6),
        ("Fetch", 1410.0, 0.3, 1.2, 3.8),
        ("Metadata", 22.0, 0.2, 0.6, 1.1),
        ("OffsetCommit", 64.0, 0.5, 1.4, 2.9),
        ("Heartbeat", 41.0, 0.1, 0.2, 0.4),
        ("ApiVersions", 3.0, 0.1, 0.1, 0.2),
    ]
    return {
        **row,
        "log_dirs": [
            {
                "path": "/var/lib/headrace/data",
                "size_bytes": row["size_bytes"],
                "total_bytes": row["total_bytes"],
                "usable_bytes": row["usable_bytes"],
                "replicas": row["replicas"],
                "error": None,
                "cordoned": False,
                "largest": [
                    {"topic": "clickstream.raw", "partition": number, "size_bytes": 29_000_000_000 - number * 10**9}
                    for number in range(5)
                ],
            }
        ],
        "requests": [
            {"api": api, "per_second": rate, "errors_per_second": 0.0, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}
            for api, rate, p50, p95, p99 in apis
        ],
        "connection_metrics": None,
        "metrics_error": None,
    }


def overview(now_ms: int, topics: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "time_ms": now_ms,
        "cluster_id": "kL4wq0m2T5eC1hR7yPz8Ug",
        "reachable": True,
        "error": None,
        "kafka": "headrace",
        "brokers": 3,
        "brokers_down": [],
        "controller": 2,
        "topics": len(topics),
        "partitions": sum(row["partitions"] for row in topics),
        "under_replicated": 2,
        "under_min_isr": 0,
        "offline": 0,
        "reassignments": 1,
        "groups": len(groups),
        "groups_lagging": 4,
        "messages_in_per_second": wave("messages_in", now_ms, 15_800),
        "bytes_in_per_second": wave("bytes_in", now_ms, 3.9e6),
        "bytes_out_per_second": wave("bytes_out", now_ms, 13.2e6),
        "size_bytes": 1_240_000_000_000,
        "attention_time_ms": now_ms - 40_000,
        "history_topic": "__headrace_console",
        "attention": [
            {
                "check": "under-replicated",
                "severity": "error",
                "problem": "2 partitions have fewer in-sync replicas than replicas.",
                "fix": "Broker 3 follows slowly. Look at its disk and its network.",
                "items": ["clickstream.raw-0", "clickstream.raw-1"],
                "items_total": 2,
            },
            {
                "check": "groups",
                "severity": "warning",
                "problem": "Group recommendation-trainer has no members and a lag of 4,820,511 records.",
                "fix": "Start its consumers, or delete the group if it is not needed any more.",
                "items": ["recommendation-trainer"],
                "items_total": 1,
            },
            {
                "check": "disk",
                "severity": "note",
                "problem": "The log directory of broker 3 is 72% full.",
                "fix": "At the present rate it is full in 19 days.",
                "items": [],
                "items_total": 0,
            },
        ],
    }


MEANS = {
    "messages_in": 15_800,
    "bytes_in": 3.9e6,
    "bytes_out": 13.2e6,
    "broker.bytes_in": 1.31e6,
    "broker.bytes_out": 4.4e6,
    "group.lag": 9_000,
    "group.lag_seconds": 4.0,
    "topic.messages_in": 2_400,
    "topic.size_bytes": 8e9,
}
UNITS = {
    "messages_in": "1/s",
    "topic.messages_in": "1/s",
    "group.lag": "records",
    "group.lag_seconds": "s",
    "topic.size_bytes": "B",
}


def history(names: list[str], from_ms: int, to_ms: int, points: int) -> dict[str, Any]:
    step = max(1, (to_ms - from_ms) // points)
    times = [at // step * step for at in range(from_ms, to_ms, step)]
    series = [
        {
            "name": name,
            "unit": UNITS.get(kind, "B/s"),
            "values": [round(wave(name, at, MEANS.get(kind, 1)), 2) for at in times],
        }
        for name in names
        for kind in [name.partition(":")[0]]
    ]
    return {"times_ms": times, "series": series}


def record(partition: int, offset: int, now_ms: int) -> dict[str, Any]:
    value = {
        "event": "page_view",
        "user_id": 10_000 + offset * 37 % 8_000,
        "page": ["home", "good_detail", "cart", "payment"][offset % 4],
        "city": CITIES[offset % 6],
        "during_ms": 300 + offset * 97 % 9_000,
        "amount": round(offset % 900 / 7, 2),
    }
    text = json.dumps(value)
    key = f"user-{value['user_id']}"
    tombstone = offset % 19 == 7
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": now_ms - (1000 - offset % 1000) * 830,
        "timestamp_type": "create",
        "key": {"decoder": "text", "text": key, "size_bytes": len(key), "truncated": False, "error": None},
        "value": None
        if tombstone
        else {
            "decoder": "json",
            "text": text,
            "json": value,
            "size_bytes": len(text),
            "truncated": False,
            "error": None,
        },
        "headers": [
            {
                "name": "trace-id",
                "value": {
                    "decoder": "text",
                    "text": f"{zlib.crc32(text.encode()):08x}",
                    "size_bytes": 8,
                    "truncated": False,
                    "error": None,
                },
            }
        ],
        "size_bytes": 0 if tombstone else len(text) + len(key) + 24,
        "control": "commit" if offset % 23 == 11 else None,
        "transaction": {"producer_id": 4001, "state": ["committed", "committed", "aborted", "open"][offset % 4]}
        if offset % 5 == 0
        else None,
        "producer_id": 4001,
        "producer_epoch": 2,
        "sequence": offset,
        "compression": "zstd",
    }


def transactions(now_ms: int) -> list[dict[str, Any]]:
    rows = [
        ("dwd-writer-0", "Ongoing", 4_200, 4),
        ("dwd-writer-1", "Ongoing", 3_900, 3),
        ("billing-export", "Ongoing", 912_000, 1),
        ("invoice-service", "CompleteCommit", None, 0),
        ("payments-loader", "CompleteAbort", None, 0),
        ("mail-once", "Empty", None, 0),
    ]
    return [
        {
            "transactional_id": name,
            "producer_id": 4001 + index,
            "producer_epoch": index,
            "state": state,
            "coordinator": 1 + index % 3,
            "timeout_ms": 60_000,
            "start_time_ms": now_ms - age if age else None,
            "age_ms": age,
            "partitions": [{"topic": "dwd_page", "partition": number} for number in range(count)],
            "hanging": (age or 0) > 60_000,
        }
        for index, (name, state, age, count) in enumerate(rows)
    ]


def pipeline(name: str, now_ms: int) -> dict[str, Any]:
    flows = [(f"ods_traffic to {topic}", ["ods_traffic"], topic) for topic in FLOWS[:3]] + [
        (f"ods_business to {topic}", ["ods_business"], topic) for topic in FLOWS[3:]
    ]
    if name == "dws-traffic":
        flows = [("minutes", ["dwd_page", "dwd_order", "dwd_payment"], "dws_traffic")]
    documents: list[dict[str, Any]] = [
        {
            "flow": flow,
            "sources": sources,
            "outputs": [{"name": output, "kind": "topic", "rows": 1_000_000}],
            "batch_id": 4_812,
            "rows": 12_400_000,
            "rows_per_second": wave(flow, now_ms, 800),
            "batch_seconds": round(wave(flow, now_ms, 1.3), 2),
            "lag": int(wave(flow, now_ms, 900)),
            "dead_letters": 3,
        }
        for flow, sources, output in flows
    ]
    if name == "dws-traffic":
        documents[0]["outputs"].append({"name": "warehouse.dws_traffic", "kind": "table", "rows": 1_000})
    nodes: dict[str, dict[str, str]] = {}
    edges = []
    for each in documents:
        nodes[each["flow"]] = {"id": each["flow"], "kind": "flow", "name": each["flow"]}
        for source in each["sources"]:
            nodes[source] = {"id": source, "kind": "topic", "name": source}
            edges.append(
                {"from": source, "to": each["flow"], "rows_per_second": each["rows_per_second"] / len(each["sources"])}
            )
        for output in each["outputs"]:
            nodes[output["name"]] = {"id": output["name"], "kind": output["kind"], "name": output["name"]}
            edges.append({"from": each["flow"], "to": output["name"], "rows_per_second": each["rows_per_second"]})
    batches = [
        {
            "flow": each["flow"],
            "batch_id": 4_812 - back,
            "time_ms": now_ms - back * 5_000,
            "rows": int(wave(each["flow"], now_ms - back * 5_000, 4_000)),
            "seconds": round(wave(each["flow"] + "s", now_ms - back * 5_000, 1.3), 2),
            "lag": 900,
            "phases_ms": {"read": 410, "transform": 520, "write": 330},
        }
        for each in documents
        for back in range(60)
    ]
    return {
        **pipeline_row(name, now_ms),
        "flows": documents,
        "graph": {"nodes": list(nodes.values()), "edges": edges},
        "batches": batches,
    }


def pipeline_row(name: str, now_ms: int) -> dict[str, Any]:
    return {
        "pipeline": name,
        "run_id": "r-" + name,
        "state": "running",
        "started_ms": now_ms - 7_400_000,
        "updated_ms": now_ms - 1_200,
        "host": "spark-1",
        "rows_per_second": wave(name, now_ms, 4_900),
        "lag": int(wave(name, now_ms, 4_300)),
        "dead_letters": 18 if name == "ods-dwd" else 0,
        "error": None,
    }


def dead_letters(now_ms: int, reason: str | None) -> dict[str, Any]:
    reasons = [("not a JSON document", 11), ("no user id", 5), ("page id is longer than 64 bytes", 2)]
    records = [
        {
            "partition": number % 3,
            "offset": 900 + number,
            "reason": text,
            "source": {
                "topic": "ods_traffic",
                "partition": number % 12,
                "offset": 40_001_000 + number,
                "timestamp_ms": now_ms - number * 60_000,
            },
            "key": f"user-{number}",
            "value": '{"common": {"mid": "mid_1',
            "encoding": "text",
        }
        for number, text in enumerate(text for text, count in reasons for _ in range(count))
        if reason in (None, "", text)
    ]
    return {
        "topic": "dead_letters",
        "reasons": [{"reason": text, "count": count} for text, count in reasons],
        "records": records,
        "cursor": None,
    }


def alerts(now_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "rule_id": "r1",
            "rule": "Lag of the trainer",
            "target": "recommendation-trainer",
            "value": 4_820_511.0,
            "threshold": 1_000_000.0,
            "state": "firing",
            "since_ms": now_ms - 5_230_000,
            "message": "The lag of group recommendation-trainer is 4,820,511 records, above 1,000,000.",
        },
        {
            "rule_id": "r2",
            "rule": "Replication",
            "target": "",
            "value": 2.0,
            "threshold": 0.0,
            "state": "pending",
            "since_ms": now_ms - 41_000,
            "message": "2 partitions are under-replicated.",
        },
    ]


RULES = [
    {
        "id": "r1",
        "name": "Lag of the trainer",
        "kind": "group_lag",
        "target": "recommendation-*",
        "threshold": 1_000_000.0,
        "for_seconds": 300,
        "enabled": True,
        "webhook": "https://alerts.example.com/hook",
    },
    {
        "id": "r2",
        "name": "Replication",
        "kind": "under_replicated",
        "target": "",
        "threshold": 0.0,
        "for_seconds": 60,
        "enabled": True,
        "webhook": None,
    },
    {
        "id": "r3",
        "name": "Disk",
        "kind": "disk_free",
        "target": "*",
        "threshold": 10.0,
        "for_seconds": 0,
        "enabled": True,
        "webhook": None,
    },
]
