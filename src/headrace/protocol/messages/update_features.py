"""UpdateFeatures (57). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT8, INT16, INT32, STRING, Message, field


class FeatureUpdateKey(Message):
    feature: str = field(STRING, "0+")
    max_version_level: int = field(INT16, "0+")
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field([FeatureUpdateKey], "0+")
    validate_only: bool = field(BOOL, "1+")


class UpdatableFeatureResult(Message):
    feature: str = field(STRING, "0-1")
    error_code: int = field(INT16, "0-1")
    error_message: str | None = field(STRING, "0-1", nullable="0-1")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    results: list[UpdatableFeatureResult] = field([UpdatableFeatureResult], "0-1")
