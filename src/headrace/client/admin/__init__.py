"""The admin client: topics, partitions, settings, groups, transactions, the cluster itself.

`admin.Admin` is the blocking face, `headrace.aio.Admin` the one for asyncio; both are `core.AdminCore`. What calls take
and return is in `types`; users import it from `headrace.admin`.
"""
