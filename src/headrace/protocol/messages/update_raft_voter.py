"""UpdateRaftVoter (82). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, STRING, UINT16, UUID, Message, field


class Listener(Message):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class KRaftVersionFeature(Message):
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class UpdateRaftVoterRequest(Message, api_key=82, versions="0-0", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    current_leader_epoch: int = field(INT32, "0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: Uuid = field(UUID, "0+")
    listeners: list[Listener] = field([Listener], "0+")
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, "0+")


class CurrentLeader(Message):
    leader_id: int = field(INT32, "0+", default=-1)
    leader_epoch: int = field(INT32, "0+", default=-1)
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")


class UpdateRaftVoterResponse(Message, api_key=82, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    current_leader: CurrentLeader | None = field(CurrentLeader, "0+", tag=0)
