"""The formats of the shop's events in the ODS and DWD topics. No Spark import, no state.

`ods_log`, key = device (`mid`): events of the app, as JSON of about 1 KB:

    {"event_id": "...", "ts": 1767225600000,
     "common": {"mid", "uid", "sid", "vc", "ch", "os", "ar", "md", "ba", "is_new": "0" or "1"},
     either  "start": {"entry", "loading_time", "open_ad_id", "open_ad_ms", "open_ad_skip_ms"}
     or      "page": {"page_id", "last_page_id", "during_time", "item", "item_type", "source_type"},
             "displays": [{"display_type", "item", "item_type", "order", "pos_id"}, ...],
             "actions": [{"action_id", "item", "item_type", "ts"}, ...],
     "err": {"error_code", "msg"}}

`ods_db`, key = "<table>:<primary key>": row changes, as change data capture writes them:

    {"event_id": "...", "database": "shop", "table": "order_info", "type": "insert", "update" or "delete",
     "ts": 1767225600000, "xid": 1234, "data": {"id": 17, ...}, "old": {...}}

The DWD topics contain JSON without nulls, one row per item. `src` is the source record of a row (partition and offset
in its ODS topic), `seq` its position in the event's list, counted from 0:

    dwd_start    key = mid   event_id, ts, <common>, is_new, <start>, src
    dwd_page     key = mid   event_id, ts, <common>, is_new, <page>, src
    dwd_display  key = mid   event_id, ts, <common>, is_new, page_id, <display>, seq, src
    dwd_action   key = mid   event_id, ts, <common>, is_new, page_id, <action, its ts as action_ts>, seq, src
    dwd_error    key = mid   event_id, ts, <common>, is_new, page_id or entry, <err>, src
    dwd_order, dwd_payment, dwd_refund, dwd_cart
                 key = that of the record    event_id, ts, op, xid, <the row's columns, typed>, old, src

There, `is_new` is true or false, amounts are numbers with two decimals, and times are ISO 8601 in UTC. `old` contains
the values that an update replaced, unchanged.
"""

from typing import Final

ODS_LOG: Final = "ods_log"
ODS_DB: Final = "ods_db"

COMMON_FIELDS: Final = ("mid", "uid", "sid", "vc", "ch", "os", "ar", "md", "ba")
"""The text fields of `common`; `is_new` is separate."""

START: Final = "entry STRING, loading_time BIGINT, open_ad_id BIGINT, open_ad_ms BIGINT, open_ad_skip_ms BIGINT"
PAGE: Final = (
    "page_id STRING, last_page_id STRING, during_time BIGINT, item STRING, item_type STRING, source_type STRING"
)
DISPLAY: Final = "display_type STRING, item STRING, item_type STRING, `order` BIGINT, pos_id BIGINT"
ACTION: Final = "action_id STRING, item STRING, item_type STRING, ts BIGINT"
ERROR: Final = "error_code BIGINT, msg STRING"
CORRUPT: Final = "_corrupt"
"""The column where Spark puts the text of an event that does not fit."""

LOG_EVENT: Final = (
    "event_id STRING, ts BIGINT, "
    f"common STRUCT<{', '.join(f'{name}: STRING' for name in (*COMMON_FIELDS, 'is_new'))}>, "
    f"start STRUCT<{START}>, page STRUCT<{PAGE}>, "
    f"displays ARRAY<STRUCT<{DISPLAY}>>, actions ARRAY<STRUCT<{ACTION}>>, err STRUCT<{ERROR}>, "
    f"{CORRUPT} STRING"
)

DB_EVENT: Final = (
    "event_id STRING, database STRING, `table` STRING, type STRING, ts BIGINT, xid BIGINT, "
    f"data STRING, old STRING, {CORRUPT} STRING"
)
"""`data` and `old` stay JSON text: which columns they have depends on the table, see `routes`."""

OPERATIONS: Final = ("insert", "update", "delete")

ORDER_INFO: Final = (
    "id BIGINT, user_id BIGINT, mid STRING, total_amount DECIMAL(16,2), sku_count INT, area STRING, "
    "order_status STRING, create_time TIMESTAMP, operate_time TIMESTAMP"
)
PAYMENT_INFO: Final = (
    "id BIGINT, order_id BIGINT, user_id BIGINT, payment_type STRING, payment_amount DECIMAL(16,2), "
    "payment_status STRING, callback_time TIMESTAMP"
)
REFUND_INFO: Final = (
    "id BIGINT, order_id BIGINT, user_id BIGINT, refund_amount DECIMAL(16,2), refund_reason STRING, "
    "refund_status STRING, create_time TIMESTAMP"
)
CART_INFO: Final = "id BIGINT, user_id BIGINT, sku_id BIGINT, sku_name STRING, cart_price DECIMAL(16,2), sku_num INT"

PAID: Final = "succeeded"
"""The status of a payment that counts as revenue."""

DWD_START: Final = "dwd_start"
DWD_PAGE: Final = "dwd_page"
DWD_DISPLAY: Final = "dwd_display"
DWD_ACTION: Final = "dwd_action"
DWD_ERROR: Final = "dwd_error"
DWD_ORDER: Final = "dwd_order"
DWD_PAYMENT: Final = "dwd_payment"
DWD_REFUND: Final = "dwd_refund"
DWD_CART: Final = "dwd_cart"
LOG_TOPICS: Final = (DWD_START, DWD_PAGE, DWD_DISPLAY, DWD_ACTION, DWD_ERROR)

EARLIEST_TS: Final = 946_684_800_000
LATEST_TS: Final = 4_102_444_800_000
"""Event times before 2000 or after 2100 are taken for mistakes."""
