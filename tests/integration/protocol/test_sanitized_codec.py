"""The codec built with AddressSanitizer and UndefinedBehaviorSanitizer, under the fuzzer and under its unit tests.

A test shows that the build detects a read past the end of a frame, which otherwise mostly goes unnoticed.
"""

import json
from pathlib import Path

import pytest
from tests.support.sanitizers.build import FUZZ_ROUNDS, SanitizedPackage, build_sanitized


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> SanitizedPackage:
    return build_sanitized(tmp_path_factory.mktemp("sanitized"), "protocol")


def test_the_whole_codec_is_sanitized(sanitized: SanitizedPackage) -> None:
    protocol = sanitized.source / "headrace" / "protocol"
    modules = sorted(path.stem for path in protocol.glob("*.pyx"))
    built = sorted(protocol.glob("*.so"))
    assert [path.name.split(".")[0] for path in built] == modules
    for path in built:
        assert b"__asan_report_load" in path.read_bytes(), path


@pytest.mark.parametrize("seed", [201, 202])
def test_fuzzed_frames_stay_within_memory(sanitized: SanitizedPackage, seed: int) -> None:
    run = sanitized.run("-m", "tests.support.protocol.fuzzer", "--seed", str(seed), "--rounds", str(4 * FUZZ_ROUNDS))
    assert run.returncode == 0, f"seed {seed}: {run.stderr}"
    result = json.loads(run.stdout)
    assert Path(result["codec"]).is_relative_to(sanitized.source)
    assert result["outcomes"]["accepted"] > FUZZ_ROUNDS / 10
    assert len(result["reasons"]) > 10


def test_unit_tests_pass_on_sanitized_codec(sanitized: SanitizedPackage) -> None:
    """Runs all except tests that measure memory, fuzz (see above), or need the project's files."""
    chosen = "not cost_no_memory and not rounds and not our_errors and not test_messages and not test_stubs"
    run = sanitized.run("-m", "pytest", "tests/unit/protocol", "-q", "-p", "no:cacheprovider", "-k", chosen)
    assert run.returncode == 0, run.stdout + run.stderr


READ_PAST_THE_END = """
import ctypes
from headrace.protocol import _reader, decode, encode
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

assert _reader.__file__.startswith({source!r}), _reader.__file__
whole = encode(MetadataRequest(topics=[MetadataRequestTopic(name="topic")] * 30), 0)
short = ctypes.create_string_buffer(whole[:100], 100)
lying = (ctypes.c_uint8 * len(whole)).from_address(ctypes.addressof(short))
print(len(decode(MetadataRequest, 0, whole).topics), flush=True)
decode(MetadataRequest, 0, lying)
print("unnoticed")
"""


def test_sanitizer_detects_read_past_end(sanitized: SanitizedPackage) -> None:
    run = sanitized.run("-c", READ_PAST_THE_END.format(source=str(sanitized.source)))
    assert run.stdout == "30\n"
    assert run.returncode != 0
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in run.stderr
