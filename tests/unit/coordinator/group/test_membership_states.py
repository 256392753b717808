"""Every request in every group state: the response and the next state.

`TABLE` has a row for each request (or timeout) of `REQUESTS` and a column for each `Situation`. A cell is
`response>state`: the short form of the response (see `ANSWERS`) and the first letter of the next state, or `-` for no
group. The response of a timeout row is the remaining members by role: Leader, Follower, Static.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.support.coordinator.group_scenes import CHANGED, INSTANCE, OTHER_VOTE, PROTOCOLS, Scene, Situation
from tests.support.coordinator.groups import GROUP, REBALANCE_MS, SESSION_MS, GroupBench

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
    for_code,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.result import ProducerInfo

PRODUCER = ProducerInfo(7, 0)

ANSWERS: dict[type[KafkaError], str] = {
    CoordinatorNotAvailableError: "away",
    FencedInstanceIdError: "fenced",
    GroupIdNotFoundError: "none",
    GroupMaxSizeReachedError: "full",
    GroupSubscribedToTopicError: "read",
    IllegalGenerationError: "gen",
    InconsistentGroupProtocolError: "proto",
    InvalidSessionTimeoutError: "time",
    MemberIdRequiredError: "id",
    NonEmptyGroupError: "busy",
    NotCoordinatorError: "moved",
    RebalanceInProgressError: "again",
    UnknownMemberIdError: "who",
    UnstableOffsetCommitError: "open",
}
"""Short forms; `ok` is no error, `...` a pending request."""

TABLE = """
                                            absent    empty     initial   preparing complet.  stable    dead
join: new, old client                       ...>P     ...>P     ...>P     ...>P     ...>P     ...>P     away>D
join: new                                   id>E      id>E      id>P      id>P      id>C      id>S      away>D
join: new, with its id                      ...>P     ...>P     ...>P     ...>P     ...>P     ...>P     away>D
join: new, static                           ...>P     ...>P     ...>P     ...>P     ...>P     ...>P     away>D
join: an id that nobody has                 who>-     who>E     who>P     who>P     who>C     who>S     away>D
join: leader                                who>-     who>E     ...>P     ...>P     ok>C      ...>P     away>D
join: follower                              who>-     who>E     ...>P     ...>P     ok>C      ok>S      away>D
join: follower, changed                     who>-     who>E     ...>P     ...>P     ...>P     ...>P     away>D
join: the last that is waited for           who>-     who>E     ...>P     ok>C      ok>C      ok>S      away>D
join: static                                who>-     who>E     ...>P     ...>P     ok>C      ok>S      away>D
join: static, restarted                     ...>P     ...>P     ...>P     ...>P     ...>P     ok>S      away>D
join: static, restarted, changed            ...>P     ...>P     ...>P     ...>P     ...>P     ok>S      away>D
join: static, restarted, new vote           ...>P     ...>P     ...>P     ...>P     ...>P     ...>P     away>D
join: static, fenced                        who>-     who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
join: static, unknown instance              who>-     who>E     who>P     who>P     who>C     who>S     away>D
join: other protocol type                   ...>P     ...>P     proto>P   proto>P   proto>C   proto>S   away>D
join: no protocol type                      proto>-   proto>E   proto>P   proto>P   proto>C   proto>S   away>D
join: other protocols                       who>-     who>E     proto>P   proto>P   proto>C   proto>S   away>D
join: no protocols                          proto>-   proto>E   proto>P   proto>P   proto>C   proto>S   away>D
join: session too short                     time>-    time>E    time>P    time>P    time>C    time>S    time>D
join: new, the group is full                ...>P     ...>P     full>P    ...>P     full>C    full>S    away>D
join: follower, more than fit               who>-     who>E     ...>P     full>P    ok>C      ok>S      away>D
join: static, restarted, full               ...>P     ...>P     ...>P     ...>P     ...>P     ok>S      away>D
sync: leader                                who>-     who>E     again>P   again>P   ok>S      ok>S      away>D
sync: follower                              who>-     who>E     again>P   again>P   ...>C     ok>S      away>D
sync: follower, then leader                 who>-     who>E     again>P   again>P   ok>S      ok>S      away>D
sync: static                                who>-     who>E     again>P   again>P   ...>C     ok>S      away>D
sync: static, fenced                        who>-     who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
sync: unknown instance                      who>-     who>E     who>P     who>P     who>C     who>S     away>D
sync: an id that nobody has                 who>-     who>E     who>P     who>P     who>C     who>S     away>D
sync: older generation                      who>-     who>E     gen>P     gen>P     gen>C     gen>S     away>D
sync: newer generation                      who>-     who>E     gen>P     gen>P     gen>C     gen>S     away>D
sync: other protocol type                   who>-     who>E     proto>P   proto>P   proto>C   proto>S   away>D
sync: other protocol                        who>-     who>E     proto>P   proto>P   proto>C   proto>S   away>D
sync: its protocol                          who>-     who>E     proto>P   again>P   ...>C     ok>S      away>D
beat: leader                                who>-     who>E     again>P   again>P   ok>C      ok>S      away>D
beat: follower                              who>-     who>E     again>P   again>P   ok>C      ok>S      away>D
beat: static                                who>-     who>E     again>P   again>P   ok>C      ok>S      away>D
beat: static, fenced                        who>-     who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
beat: fenced, instance not told             who>-     who>E     who>P     who>P     who>C     who>S     away>D
beat: unknown instance                      who>-     who>E     who>P     who>P     who>C     who>S     away>D
beat: an id that nobody has                 who>-     who>E     who>P     who>P     who>C     who>S     away>D
beat: an id that waits to be used           who>E     who>E     who>P     who>P     who>C     who>S     away>D
beat: older generation                      who>-     who>E     gen>P     gen>P     gen>C     gen>S     away>D
beat: newer generation                      who>-     who>E     gen>P     gen>P     gen>C     gen>S     away>D
leave: leader                               who>-     who>E     ok>P      ok>P      ok>P      ok>P      away>D
leave: follower                             who>-     who>E     ok>P      ok>P      ok>P      ok>P      away>D
leave: those that are waited for            who>-     who>E     ok>P      ok>C      ok>P      ok>P      away>D
leave: all                                  who>-     who>E     ok>E      ok>E      ok>E      ok>E      away>D
leave: one that nobody is, and another      who>-     who>E     who>P     who>P     who>P     who>P     away>D
leave: static, by its instance              who>-     who>E     ok>P      ok>P      ok>P      ok>P      away>D
leave: unknown instance                     who>-     who>E     who>P     who>P     who>C     who>S     away>D
leave: static, fenced                       who>-     who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
leave: an id that waits to be used          ok>E      ok>E      ok>P      ok>P      ok>C      ok>S      away>D
commit: member                              none>-    who>E     ok>P      ok>P      again>C   ok>S      away>D
commit: static                              none>-    who>E     ok>P      ok>P      again>C   ok>S      away>D
commit: static, fenced                      none>-    who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
commit: of nobody                           ok>E      ok>E      who>P     who>P     who>C     who>S     away>D
commit: an id that nobody has               none>-    who>E     who>P     who>P     who>C     who>S     away>D
commit: member, no generation               ok>E      ok>E      gen>P     gen>P     gen>C     gen>S     away>D
commit: older generation                    none>-    who>E     gen>P     gen>P     gen>C     gen>S     away>D
commit: newer generation                    none>-    who>E     gen>P     gen>P     gen>C     gen>S     away>D
txn commit: member                          gen>-     who>E     ok>P      ok>P      ok>C      ok>S      away>D
txn commit: static, fenced                  gen>-     who>E     fenced>P  fenced>P  fenced>C  fenced>S  away>D
txn commit: of nobody                       ok>E      ok>E      ok>P      ok>P      ok>C      ok>S      away>D
txn commit: an id that nobody has           gen>-     who>E     who>P     who>P     who>C     who>S     away>D
txn commit: older generation                gen>-     who>E     gen>P     gen>P     gen>C     gen>S     away>D
fetch                                       -1>-      5>E       5>P       5>P       5>C       5>S       5>D
fetch: in a transaction                     -1>E      5>E       5>P       5>P       5>C       5>S       5>D
fetch: in a transaction, stable             open>E    open>E    open>P    open>P    open>C    open>S    5>D
fetch: after a transaction, stable          9>E       9>E       9>P       9>P       9>C       9>S       5>D
delete offsets: of a topic that is read     none>-    ok>E      read>P    read>P    read>C    read>S    none>D
delete offsets: of another topic            none>-    ok>E      read>P    ok>P      ok>C      ok>S      none>D
offsets of a deleted topic                  -1>-      -1>E      -1>P      -1>P      -1>C      -1>S      -1>D
delete                                      none>-    ok>-      busy>P    busy>P    busy>C    busy>S    none>D
describe                                    none>-    0>E       3>P       3>P       3>C       3r>S      none>D
list                                        no>-      yes>E     yes>P     yes>P     yes>C     yes>S     yes>D
list: stable                                no>-      no>E      no>P      no>P      no>C      yes>S     no>D
list: not stable, classic                   no>-      yes>E     yes>P     yes>P     yes>C     no>S      yes>D
list: other types                           no>-      no>E      no>P      no>P      no>C      no>S      no>D
time: the first delay                       >-        >E        FLS>P     FLS>P     FLS>C     FLS>S     FLS>D
time: the first delay, twice                >-        >E        FLS>C     FLS>P     FLS>C     FLS>S     FLS>D
time: a session, in silence                 >-        >E        FLS>C     L>C       >E        >E        FLS>D
time: a session, the follower beats         >-        >E        >E        FL>P      F>P       F>P       FLS>D
time: a session, the follower commits       >-        >E        >E        FL>P      >E        F>P       FLS>D
time: a rebalance, all beat                 >-        >E        FLS>C     LS>C      >E        FLS>S     FLS>D
time: a rebalance, the follower has synced  >-        >E        FLS>C     LS>C      F>P       FLS>S     FLS>D
time: a rebalance, the leader has synced    >-        >E        FLS>C     LS>C      L>P       FLS>S     FLS>D
time: an id that waits to be used           0>E       0>E       FLS0>C    FLS0>P    FLS0>C    FLS0>S    FLS0>D
time: retention                             no/no>-   no/no>-   5/6>P     5/6>P     5/6>C     5/no>S    5/6>D
reload                                      >-        >E        >E        FLS>S     FLS>S     FLS>S     FLS>S
move, a request waits                       who>-     who>-     moved>-   moved>-   moved>-   moved>-   away>-
"""

REQUESTS: dict[str, Callable[[Scene], Any]] = {}


def row(name: str) -> Callable[[Callable[[Scene], Any]], None]:
    def enter(ask: Callable[[Scene], Any]) -> None:
        assert name not in REQUESTS
        REQUESTS[name] = ask

    return enter


def short(answer: Any) -> str:
    """Returns the response of a row's function in the table's format."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):  # a list of responses; the first one counts
        return short(answer[0].error_code) if answer else "..."
    if isinstance(answer, int):
        return ANSWERS[for_code(answer)] if answer else "ok"
    return "ok" if answer is None else ANSWERS[answer]


def state_after(scene: Scene) -> str:
    if 0 not in scene.runtime or GROUP not in scene.shard.groups:
        return "-"
    return scene.state.value[0]


# ---- joining


@row("join: new, old client")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS)


@row("join: new")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, version=9)


@row("join: new, with its id")
def _(scene: Scene) -> Any:
    (refused,) = scene.join(protocols=PROTOCOLS, version=9)
    return scene.join(refused.member_id, protocols=PROTOCOLS, version=9)


@row("join: new, static")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, version=9, instance="another")


@row("join: an id that nobody has")
def _(scene: Scene) -> Any:
    return scene.join("nobody", protocols=PROTOCOLS)


@row("join: leader")
def _(scene: Scene) -> Any:
    return scene.join(scene.leader, protocols=PROTOCOLS)


@row("join: follower")
def _(scene: Scene) -> Any:
    return scene.join(scene.follower, protocols=PROTOCOLS)


@row("join: follower, changed")
def _(scene: Scene) -> Any:
    return scene.join(scene.follower, protocols=CHANGED)


@row("join: the last that is waited for")
def _(scene: Scene) -> Any:
    scene.join(scene.follower, protocols=PROTOCOLS)
    return scene.join(scene.static, protocols=PROTOCOLS, instance=INSTANCE)


@row("join: static")
def _(scene: Scene) -> Any:
    return scene.join(scene.static, protocols=PROTOCOLS, instance=INSTANCE)


@row("join: static, restarted")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, instance=INSTANCE, version=9)


@row("join: static, restarted, changed")
def _(scene: Scene) -> Any:
    return scene.join(protocols=CHANGED, instance=INSTANCE, version=9)


@row("join: static, restarted, new vote")
def _(scene: Scene) -> Any:
    return scene.join(protocols=OTHER_VOTE, instance=INSTANCE, version=9)


@row("join: static, fenced")
def _(scene: Scene) -> Any:
    return scene.join(scene.fenced, protocols=PROTOCOLS, instance=INSTANCE)


@row("join: static, unknown instance")
def _(scene: Scene) -> Any:
    return scene.join(scene.static, protocols=PROTOCOLS, instance="another")


@row("join: other protocol type")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, protocol_type="connect")


@row("join: no protocol type")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, protocol_type="")


@row("join: other protocols")
def _(scene: Scene) -> Any:
    return scene.join(scene.follower, protocols=[("cooperative", b"")])


@row("join: no protocols")
def _(scene: Scene) -> Any:
    return scene.join(protocols=[])


@row("join: session too short")
def _(scene: Scene) -> Any:
    return scene.join(protocols=PROTOCOLS, session_ms=5_999)


@row("join: new, the group is full")
def _(scene: Scene) -> Any:
    scene.config = GroupConfig(max_size=3)
    return scene.join(protocols=PROTOCOLS)


@row("join: follower, more than fit")
def _(scene: Scene) -> Any:
    scene.config = GroupConfig(max_size=1)
    return scene.join(scene.follower, protocols=PROTOCOLS)


@row("join: static, restarted, full")
def _(scene: Scene) -> Any:
    scene.config = GroupConfig(max_size=3)
    return scene.join(protocols=PROTOCOLS, instance=INSTANCE, version=9)


# ---- syncing


@row("sync: leader")
def _(scene: Scene) -> Any:
    return scene.sync(scene.leader, scene.generation, {scene.follower: b"f"})


@row("sync: follower")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation)


@row("sync: follower, then leader")
def _(scene: Scene) -> Any:
    replies = scene.sync(scene.follower, scene.generation)
    scene.sync(scene.leader, scene.generation, {scene.follower: b"f"})
    return replies


@row("sync: static")
def _(scene: Scene) -> Any:
    return scene.sync(scene.static, scene.generation, instance=INSTANCE)


@row("sync: static, fenced")
def _(scene: Scene) -> Any:
    return scene.sync(scene.fenced, scene.generation, instance=INSTANCE)


@row("sync: unknown instance")
def _(scene: Scene) -> Any:
    return scene.sync(scene.static, scene.generation, instance="another")


@row("sync: an id that nobody has")
def _(scene: Scene) -> Any:
    return scene.sync("nobody", scene.generation)


@row("sync: older generation")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation - 1)


@row("sync: newer generation")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation + 1)


@row("sync: other protocol type")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation, protocol_type="connect")


@row("sync: other protocol")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation, protocol="sticky")


@row("sync: its protocol")
def _(scene: Scene) -> Any:
    return scene.sync(scene.follower, scene.generation, protocol_type="consumer", protocol="range")


# ---- heartbeats


@row("beat: leader")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.leader, scene.generation)


@row("beat: follower")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.follower, scene.generation)


@row("beat: static")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.static, scene.generation, instance=INSTANCE)


@row("beat: static, fenced")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.fenced, scene.generation, instance=INSTANCE)


@row("beat: fenced, instance not told")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.fenced, scene.generation)


@row("beat: unknown instance")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.static, scene.generation, instance="another")


@row("beat: an id that nobody has")
def _(scene: Scene) -> Any:
    return scene.heartbeat("nobody", scene.generation)


@row("beat: an id that waits to be used")
def _(scene: Scene) -> Any:
    (refused,) = scene.join(protocols=PROTOCOLS, version=9)
    return scene.heartbeat(refused.member_id, scene.generation)


@row("beat: older generation")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.follower, scene.generation - 1)


@row("beat: newer generation")
def _(scene: Scene) -> Any:
    return scene.heartbeat(scene.follower, scene.generation + 1)


# ---- leaving


@row("leave: leader")
def _(scene: Scene) -> Any:
    return scene.leave(scene.leader)


@row("leave: follower")
def _(scene: Scene) -> Any:
    return scene.leave(scene.follower)


@row("leave: those that are waited for")
def _(scene: Scene) -> Any:
    return scene.leave(scene.follower, (scene.static, INSTANCE))


@row("leave: all")
def _(scene: Scene) -> Any:
    return scene.leave(scene.leader, scene.follower, (scene.static, INSTANCE))


@row("leave: one that nobody is, and another")
def _(scene: Scene) -> Any:
    return scene.leave("nobody", scene.follower)


@row("leave: static, by its instance")
def _(scene: Scene) -> Any:
    return scene.leave(("", INSTANCE))


@row("leave: unknown instance")
def _(scene: Scene) -> Any:
    return scene.leave(("", "another"))


@row("leave: static, fenced")
def _(scene: Scene) -> Any:
    return scene.leave((scene.fenced, INSTANCE))


@row("leave: an id that waits to be used")
def _(scene: Scene) -> Any:
    (refused,) = scene.join(protocols=PROTOCOLS, version=9)
    return scene.leave(refused.member_id or "nobody")


# ---- offsets


@row("commit: member")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower, scene.generation)


@row("commit: static")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.static, scene.generation, instance=INSTANCE)


@row("commit: static, fenced")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.fenced, scene.generation, instance=INSTANCE)


@row("commit: of nobody")
def _(scene: Scene) -> Any:
    return scene.commit(9)


@row("commit: an id that nobody has")
def _(scene: Scene) -> Any:
    return scene.commit(9, "nobody", scene.generation)


@row("commit: member, no generation")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower)


@row("commit: older generation")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower, scene.generation - 1)


@row("commit: newer generation")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower, scene.generation + 1)


@row("txn commit: member")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower, scene.generation, producer=PRODUCER)


@row("txn commit: static, fenced")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.fenced, scene.generation, instance=INSTANCE, producer=PRODUCER)


@row("txn commit: of nobody")
def _(scene: Scene) -> Any:
    return scene.commit(9, producer=PRODUCER)


@row("txn commit: an id that nobody has")
def _(scene: Scene) -> Any:
    return scene.commit(9, "nobody", scene.generation, producer=PRODUCER)


@row("txn commit: older generation")
def _(scene: Scene) -> Any:
    return scene.commit(9, scene.follower, scene.generation - 1, producer=PRODUCER)


def fetch(scene: Scene, stable: bool) -> str:
    found, code = scene.shard.fetch_offset(scene.shard.offsets_of(GROUP), "t", 0, stable)
    return short(code) if code else str(found.offset if found is not None else -1)


@row("fetch")
def _(scene: Scene) -> Any:
    return fetch(scene, False)


@row("fetch: in a transaction")
def _(scene: Scene) -> Any:
    scene.commit(9, producer=PRODUCER)
    return fetch(scene, False)


@row("fetch: in a transaction, stable")
def _(scene: Scene) -> Any:
    scene.commit(9, producer=PRODUCER)
    return fetch(scene, True)


@row("fetch: after a transaction, stable")
def _(scene: Scene) -> Any:
    scene.commit(9, producer=PRODUCER)
    scene.end_transaction(PRODUCER, True)
    return fetch(scene, True)


def delete_offsets(scene: Scene, topic: str) -> Any:
    tp = TopicPartition(topic, 0)
    reply = scene.ask(lambda shard: shard.delete_offsets(GROUP, [tp]))
    return reply[tp] if isinstance(reply, dict) else reply


@row("delete offsets: of a topic that is read")
def _(scene: Scene) -> Any:
    return delete_offsets(scene, "t")


@row("delete offsets: of another topic")
def _(scene: Scene) -> Any:
    return delete_offsets(scene, "u")


@row("offsets of a deleted topic")
def _(scene: Scene) -> Any:
    scene.ask(lambda shard: shard.delete_offsets_of_topics({"t"}))
    return fetch(scene, False)


# ---- administration


@row("delete")
def _(scene: Scene) -> Any:
    return scene.ask(lambda shard: shard.delete_group(GROUP))


@row("describe")
def _(scene: Scene) -> Any:
    try:
        found = scene.shard.describe(GROUP)
    except KafkaError as error:
        return type(error)
    return f"{len(found.members)}{found.protocol_data[:1]}"


def is_listed(scene: Scene, states: Iterable[str] = (), types: Iterable[str] = ()) -> str:
    return "yes" if scene.shard.list_groups(set(states), set(types)) else "no"


@row("list")
def _(scene: Scene) -> Any:
    return is_listed(scene)


@row("list: stable")
def _(scene: Scene) -> Any:
    return is_listed(scene, ["stable"])


@row("list: not stable, classic")
def _(scene: Scene) -> Any:
    return is_listed(scene, {each.value.lower() for each in GroupState} - {"stable"}, ["classic"])


@row("list: other types")
def _(scene: Scene) -> Any:
    return is_listed(scene, types=["consumer", "share"])


# ---- time


@row("time: the first delay")
def _(scene: Scene) -> Any:
    scene.pass_time(3_000)
    return scene.roles


@row("time: the first delay, twice")
def _(scene: Scene) -> Any:
    scene.pass_time(6_000)
    return scene.roles


@row("time: a session, in silence")
def _(scene: Scene) -> Any:
    scene.pass_time(SESSION_MS)
    return scene.roles


@row("time: a session, the follower beats")
def _(scene: Scene) -> Any:
    scene.pass_time(SESSION_MS - 1)
    scene.heartbeat(scene.follower, scene.generation)
    scene.pass_time(SESSION_MS - 1)
    return scene.roles


@row("time: a session, the follower commits")
def _(scene: Scene) -> Any:
    scene.pass_time(SESSION_MS - 1)
    scene.commit(9, scene.follower, scene.generation)
    scene.pass_time(SESSION_MS - 1)
    return scene.roles


@row("time: a rebalance, all beat")
def _(scene: Scene) -> Any:
    scene.pass_time_beating(REBALANCE_MS)
    return scene.roles


@row("time: a rebalance, the follower has synced")
def _(scene: Scene) -> Any:
    scene.sync(scene.follower, scene.generation)
    scene.pass_time_beating(REBALANCE_MS)
    return scene.roles


@row("time: a rebalance, the leader has synced")
def _(scene: Scene) -> Any:
    scene.sync(scene.leader, scene.generation)
    scene.pass_time_beating(REBALANCE_MS)
    return scene.roles


@row("time: an id that waits to be used")
def _(scene: Scene) -> Any:
    scene.join(protocols=PROTOCOLS, version=9)
    scene.pass_time_beating(SESSION_MS)
    group = scene.shard.groups.get(GROUP)
    return f"{scene.roles}{len(group.pending_joins) if group is not None else 0}"


@row("time: retention")
def _(scene: Scene) -> Any:
    scene.config = GroupConfig(offsets_retention_ms=1_000)
    scene.clock.advance(1_000)
    scene.expire()
    return "/".join(str(scene.committed(topic) or "no") for topic in ("t", "u"))


# ---- coordinator


@row("reload")
def _(scene: Scene) -> Any:
    scene.reload()
    return scene.roles


@row("move, a request waits")
def _(scene: Scene) -> Any:
    if GROUP in scene.shard.groups and scene.state is GroupState.COMPLETING_REBALANCE:
        replies: Any = scene.sync(scene.follower, scene.generation)
    else:
        replies = scene.join(scene.leader, protocols=PROTOCOLS)
    scene.runtime.unload(0)
    assert scene.timer.next_due_ms() is None
    return replies


# ---- table


def _read_table() -> dict[str, dict[Situation, str]]:
    rows: dict[str, dict[Situation, str]] = {}
    for line in TABLE.splitlines()[2:]:
        name, cells = line[:NAME_WIDTH].strip(), line[NAME_WIDTH:].split()
        if name:
            assert name not in rows, f"{name!r} is there twice"
            assert len(cells) <= len(Situation), f"{name!r} has too many cells"
            rows[name] = dict(zip(Situation, cells, strict=False))
    return rows


NAME_WIDTH = 44
ROWS = _read_table()


def test_table_is_complete() -> None:
    """Every request has a row, every row a request, every pair a cell."""
    assert ROWS.keys() == REQUESTS.keys()
    assert {(name, situation) for name in REQUESTS for situation in Situation} == {
        (name, situation) for name, cells in ROWS.items() for situation in cells
    }
    assert {each.value for each in GroupState} <= {each.value for each in Situation}


@pytest.mark.parametrize("situation", Situation)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_in_every_state(name: str, situation: Situation) -> None:
    scene = Scene(situation)
    answer = short(REQUESTS[name](scene))
    assert f"{answer}>{state_after(scene)}" == ROWS[name][situation]


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def test_rejects_empty_group_id(bench: GroupBench) -> None:
    assert bench.join(group_id="")[0].error_code == InvalidGroupIdError.code
    assert bench.sync("m", 1, group_id="")[0].error_code == InvalidGroupIdError.code
    assert bench.heartbeat("m", 1, group_id="") is InvalidGroupIdError
    assert bench.leave("m", group_id="") is InvalidGroupIdError
    assert bench.commit(5, group_id="") == 0


@pytest.mark.parametrize(("session_ms", "fits"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_session_timeout_limits(bench: GroupBench, session_ms: int, fits: bool) -> None:
    (reply,) = bench.join(session_ms=session_ms)
    assert reply.error_code == (0 if fits else InvalidSessionTimeoutError.code)
    assert (GROUP in bench.shard.groups) is fits
