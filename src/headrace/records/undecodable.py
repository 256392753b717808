"""The one error of reading records that is not the bytes' fault."""


class Undecodable(Exception):
    """A deserializer raised. `offset` is the record's, `field` is "key" or "value"; the cause is chained."""

    def __init__(self, offset: int, field: str):
        super().__init__(f"the {field} of the record at offset {offset} could not be deserialized")
        self.offset = offset
        self.field = field
