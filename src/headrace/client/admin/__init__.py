"""The admin client: topics, partitions, settings, groups, transactions, the cluster itself.

`Admin` is the blocking face, `headrace.aio.Admin` the one for asyncio; both are `core.AdminCore`. What calls take and
return is in `types`.
"""

from typing import TYPE_CHECKING

from headrace.client.admin.types import *  # noqa: F403
from headrace.client.admin.types import __all__ as _types

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

__all__ = ["Admin", *_types]


def __getattr__(name: str) -> object:
    if name == "Admin":
        from headrace.client.admin.admin import Admin

        return Admin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
