"""What a principal may see, as the cluster itself answers when asked as that principal.

The collector reads the cluster with the console's own rights. Everything of it that is shown to a logged-in user is
filtered by a `Visibility` first.
"""

from dataclasses import dataclass
from sys import intern

from headrace.aio.admin import Admin
from headrace.common.errors import AuthorizationError, UnsupportedVersionError

_DESCRIBE = 8
_ALL_OPERATIONS = frozenset(range(2, 16))


@dataclass(frozen=True)
class Visibility:
    """The topics and groups that a principal may describe. None stands for all of them."""

    topic_names: frozenset[str] | None
    group_names: frozenset[str] | None
    operations: frozenset[int]
    """The numbers of the ACL operations that the principal may perform on the cluster."""

    def topics(self, name: str) -> bool:
        return self.topic_names is None or name in self.topic_names

    def groups(self, name: str) -> bool:
        return self.group_names is None or name in self.group_names

    @property
    def cluster(self) -> bool:
        """Whether the principal may describe the cluster: its log directories, reassignments and metrics."""
        return _DESCRIBE in self.operations

    @property
    def is_everything(self) -> bool:
        return self.topic_names is None and self.group_names is None and self.cluster


EVERYTHING = Visibility(None, None, _ALL_OPERATIONS)


async def read_visibility(admin: Admin) -> Visibility:
    """Asks the cluster what the client's principal may see."""
    topics = await admin.describe_topics()  # not list_topics: the client would keep the metadata of all topics
    try:
        groups = frozenset(listing.group_id for listing in await admin.list_groups())
    except AuthorizationError:
        groups = frozenset()
    try:
        cluster = await admin.describe_cluster(include_authorized_operations=True)
        operations = cluster.authorized_operations or frozenset()
    except UnsupportedVersionError:
        operations = frozenset()
    return Visibility(frozenset(intern(str(name)) for name in topics), groups, operations)
