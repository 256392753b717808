from collections.abc import Sequence

from headrace.common.types import Buffer

class FieldFinder:
    def __init__(self, paths: Sequence[Sequence[str]]) -> None: ...
    def find(
        self, ends: Buffer, data: Buffer, first: int, rows: int
    ) -> list[tuple[bytearray, bytearray, bytearray]]: ...
