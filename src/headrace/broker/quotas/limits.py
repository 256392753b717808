"""The limits of one quota, and which of them applies to a client.

The most specific limit applies:

    1  /config/users/<user>/clients/<client id>          5  /config/users/<default>/clients/<default>
    2  /config/users/<user>/clients/<default>            6  /config/users/<default>
    3  /config/users/<user>                              7  /config/clients/<client id>
    4  /config/users/<default>/clients/<client id>       8  /config/clients/<default>

It also determines who shares it: with 1, 2, 4 and 5 each client id of each user has a rate of its own; with 3 and 6 all
client ids of a user share one, and with 7 and 8 all users of a client id.
"""

from headrace.cluster.znodes import DEFAULT_ENTITY

Group = tuple[str, str]
"""Encoded user and client id; empty where the group has all of them."""


class QuotaLimits:
    """Limits by encoded user and client id, as in the names of the store. Empty: the entity has none."""

    def __init__(self) -> None:
        self._limits: dict[Group, float] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def set(self, user: str, client_id: str, limit: float | None) -> bool:
        """Sets or removes a limit. Returns True if it has changed."""
        before = self._limits.get((user, client_id))
        if limit is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = limit
        return limit != before

    def find(self, user: str, client_id: str) -> tuple[Group, float] | None:
        """Returns the group in which a client is measured, and its limit; None if the client has no limit."""
        for entity, group in (
            ((user, client_id), (user, client_id)),
            ((user, DEFAULT_ENTITY), (user, client_id)),
            ((user, ""), (user, "")),
            ((DEFAULT_ENTITY, client_id), (user, client_id)),
            ((DEFAULT_ENTITY, DEFAULT_ENTITY), (user, client_id)),
            ((DEFAULT_ENTITY, ""), (user, "")),
            (("", client_id), ("", client_id)),
            (("", DEFAULT_ENTITY), ("", client_id)),
        ):
            limit = self._limits.get(entity)
            if limit is not None:
                return group, limit
        return None
