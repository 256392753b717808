"""Names of ACL operations."""

from collections.abc import Iterable

from headrace.security.acls import Operation


def operation_names(numbers: Iterable[int] | None) -> list[str] | None:
    """Returns the names of operations, or None if the cluster has not said which ones are allowed."""
    if numbers is None:
        return None
    known = {operation.value: operation.name for operation in Operation}
    return sorted(known[number] for number in numbers if number in known)
