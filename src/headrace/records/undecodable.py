"""The error of a failed deserializer."""


class Undecodable(Exception):
    """A deserializer raised an exception, which is the cause. `field` is "key" or "value"."""

    def __init__(self, offset: int, field: str):
        super().__init__(f"Error deserializing the {field} of the record at offset {offset}")
        self.offset = offset
        self.field = field
