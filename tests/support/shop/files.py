"""A state store in memory."""


class FilesInMemory:
    """Files by name. A file is never written twice."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def list(self) -> list[str]:
        return sorted(self.content)

    def load(self, name: str) -> bytes:
        return self.content[name]

    def store(self, name: str, content: bytes) -> None:
        assert name not in self.content
        self.content[name] = content

    def remove(self, name: str) -> None:
        self.content.pop(name, None)
