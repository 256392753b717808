from typing import ClassVar

class Layout:
    fields: tuple[object, ...]
    names: tuple[str, ...]

class MessageBase:
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool: ...

def lay_out(cls: type, fields: tuple[object, ...]) -> None: ...
def allow_vectorcall(metaclass: type) -> None: ...
