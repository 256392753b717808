"""The admin client and the types of its arguments and results: `from headrace.admin import NewTopic`."""

from headrace.client.admin.acl_types import *  # noqa: F403
from headrace.client.admin.acl_types import __all__ as _acl_types
from headrace.client.admin.admin import Admin
from headrace.client.admin.quota_types import *  # noqa: F403
from headrace.client.admin.quota_types import __all__ as _quota_types
from headrace.client.admin.scram_types import *  # noqa: F403
from headrace.client.admin.scram_types import __all__ as _scram_types
from headrace.client.admin.token_types import *  # noqa: F403
from headrace.client.admin.token_types import __all__ as _token_types
from headrace.client.admin.types import *  # noqa: F403
from headrace.client.admin.types import __all__ as _types

__all__ = ["Admin", *_acl_types, *_quota_types, *_scram_types, *_token_types, *_types]
