"""What the admin client takes and returns, in one place to import from: `from headrace.admin import NewTopic`."""

from headrace.client.admin.admin import Admin
from headrace.client.admin.types import *  # noqa: F403
from headrace.client.admin.types import __all__ as _types

__all__ = ["Admin", *_types]
