from typing import Any

class IndexFields:
    _data: bytearray | None

class SegmentFields:
    base_offset: int
    created_ms: int
    size: int
    jitter_ms: int
    offset_index: Any
    time_index: Any
    recently_used: bool
    _bytes_since_index: int
    _file: Any
    _tail_may_be_dirty: bool
    _first_batch_timestamp: int | None
    _max_timestamp: tuple[int, int] | None
    _last_batch: Any

class LogFields:
    config: Any
    segments: Any
    epochs: Any
    producers: Any
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int
    _ends_in_gap: bool
    _closed: bool
    _failed_appends: Any
