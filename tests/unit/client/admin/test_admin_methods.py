"""The blocking and the asyncio admin client have the same methods and cover every admin API of the broker."""

import inspect
import re
from pathlib import Path

import headrace
import headrace.aio
import headrace.client.admin
from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.client.admin.core import AdminCore
from headrace.protocol import APIS, ApiKey

NOT_FOR_ADMINS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.API_VERSIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""APIs for producers, consumers and group members, for connections and lookups, and between brokers."""
REFUSED = {ApiKey.UPDATE_FEATURES}
"""The broker refuses every request: ZooKeeper mode has no features to update."""


def calls(cls: type) -> set[str]:
    return {name for name, value in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


def test_blocking_and_asyncio_admin_have_the_same_methods() -> None:
    assert calls(headrace.Admin) == calls(AdminCore) == calls(headrace.aio.Admin)


def test_every_method_has_a_docstring() -> None:
    for name in calls(headrace.Admin):
        assert inspect.getdoc(getattr(headrace.Admin, name)), name
        if name != "close":
            ours, theirs = (inspect.signature(getattr(face, name)) for face in (headrace.Admin, AdminCore))
            assert list(ours.parameters) == list(theirs.parameters)


def test_admin_covers_every_admin_api_of_the_broker() -> None:
    assert handlers is not None  # the import fills the registry
    folder = Path(inspect.getfile(headrace.client.admin)).parent
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    used = set(re.findall(r"headrace\.protocol\.messages(?:\.| import )(\w+)", source))
    served = {APIS[ApiKey(key)].module for key in REGISTRY if ApiKey(key) not in NOT_FOR_ADMINS | REFUSED}
    assert served - used == set()
