"""The compiled JSON modules with AddressSanitizer and UndefinedBehaviorSanitizer: the fuzzer and the unit tests."""

import json
from pathlib import Path

import pytest
from tests.support.sanitizers.build import FUZZ_ROUNDS, SanitizedPackage, build_sanitized


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> SanitizedPackage:
    return build_sanitized(tmp_path_factory.mktemp("sanitized"), "pipelines")


@pytest.mark.parametrize("seed", [301, 302])
def test_fuzzed_rows_stay_within_memory(sanitized: SanitizedPackage, seed: int) -> None:
    run = sanitized.run("-m", "tests.support.pipelines.json_fuzzer", "--seed", str(seed), "--rounds", str(FUZZ_ROUNDS))
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    kernel = Path(result["kernel"])
    assert kernel.is_relative_to(sanitized.source)
    assert b"__asan_report_load" in kernel.read_bytes()
    assert min(result["outcomes"].values()) > FUZZ_ROUNDS / 10


def test_unit_tests_pass_on_sanitized_modules(sanitized: SanitizedPackage) -> None:
    run = sanitized.run("-m", "pytest", "tests/unit/pipelines/test_json_columns.py", "-q", "-p", "no:cacheprovider")
    assert run.returncode == 0, run.stdout + run.stderr
