from collections.abc import Callable
from typing import Any

from headrace.common.types import Buffer

class JsonReader:
    def __init__(self, fields: tuple[Any, ...]) -> None: ...
    def read(
        self,
        data: Buffer,
        offsets: Buffer,
        valid: Buffer | None,
        first: int,
        count: int,
        fallback: Callable[[bytes], bytes | str],
    ) -> tuple[list[Any], tuple[Any, int], dict[int, str], list[int]]: ...
