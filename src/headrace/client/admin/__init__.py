"""The admin client: topics, partitions, configuration, groups, transactions, the cluster.

`admin.Admin` is the blocking client, `headrace.aio.Admin` the asyncio client. Both are built on `core.AdminCore`. The
types of arguments and results are in `types` and `quota_types`. Applications import them from `headrace.admin`.
"""
