"""The asyncio admin client."""

from headrace.client.admin.core import AdminCore

__all__ = ["Admin"]


class Admin(AdminCore):
    __doc__ = AdminCore.__doc__
