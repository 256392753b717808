from typing import Any

from headrace.common.types import Buffer

def choose_partitions(
    rows: int,
    partition_count: int,
    fallback: int,
    partitions: Buffer | None,
    keys: tuple[Any, Any, Any, int] | None,
) -> bytearray: ...
def group_rows(chosen: bytearray, partition_count: int) -> tuple[bytearray, list[tuple[int, int, int]]]: ...
