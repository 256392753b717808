"""Names that several pages of the API have."""

from dataclasses import dataclass
from typing import Annotated

from headrace.console.schema import Length, Range


@dataclass(frozen=True)
class PartitionName:
    """A partition."""

    topic: Annotated[str, Length(1, 249)]
    partition: Annotated[int, Range(0, 2**31 - 1)]
