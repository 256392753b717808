"""The compiled record modules with AddressSanitizer and UndefinedBehaviorSanitizer: the fuzzer and the unit tests.

A read of one byte too many usually goes unnoticed; the sanitizers end the process with a report. Other tests show that
they do.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.sanitizers.build import FLAGS, FUZZ_ROUNDS, SanitizedPackage, build_sanitized

FUZZ_SEEDS = (101, 102, 103, 104)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> SanitizedPackage:
    return build_sanitized(tmp_path_factory.mktemp("sanitized"), "records")


def test_the_whole_kernel_is_sanitized(sanitized: SanitizedPackage) -> None:
    records = sanitized.source / "headrace" / "records"
    modules = sorted(path.stem for path in records.glob("*.pyx"))
    built = sorted(records.glob("*.so"))
    assert [path.name.split(".")[0] for path in built] == modules
    for path in built:
        compiled = path.read_bytes()
        assert b"__asan_report_load" in compiled, path
        assert b"__ubsan_handle" in compiled, path


def test_fuzzed_batches_stay_within_memory(sanitized: SanitizedPackage) -> None:
    def fuzz(seed: int) -> subprocess.CompletedProcess[str]:
        return sanitized.run("-m", "tests.support.records.fuzzer", "--seed", str(seed), "--rounds", str(FUZZ_ROUNDS))

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(fuzz, FUZZ_SEEDS))
    for seed, run in zip(FUZZ_SEEDS, runs, strict=True):
        assert run.returncode == 0, f"seed {seed}: {run.stderr}"
        result = json.loads(run.stdout)
        assert Path(result["kernel"]).is_relative_to(sanitized.source)
        assert result["outcomes"]["records: accepted"] > FUZZ_ROUNDS / 10
        assert len(result["reasons"]) > 50


def test_unit_tests_pass_on_sanitized_kernel(sanitized: SanitizedPackage) -> None:
    """Runs all except tests that measure memory or fuzz (see above)."""
    chosen = "not decompression_bomb and not fuzz"
    run = sanitized.run("-m", "pytest", "tests/unit/records", "-q", "-p", "no:cacheprovider", "-k", chosen)
    assert run.returncode == 0, run.stdout + run.stderr


READ_PAST_THE_END = """
import ctypes
from headrace.records import RecordBatch, _batch, encode_rows

assert _batch.__file__.startswith({source!r}), _batch.__file__
whole = encode_rows([(b"key", b"value" * 100, 0, None)] * 3)
short = ctypes.create_string_buffer(bytes(whole[:300]), 300)
lying = (ctypes.c_uint8 * len(whole)).from_address(ctypes.addressof(short))
print("as it should be", RecordBatch(whole).records().offsets(), flush=True)
RecordBatch(lying).records()
print("unnoticed")
"""


def test_sanitizer_detects_read_past_end(sanitized: SanitizedPackage) -> None:
    """A buffer that claims more than its memory simulates a missing check."""
    run = sanitized.run("-c", READ_PAST_THE_END.format(source=str(sanitized.source)))
    assert run.stdout == "as it should be [0, 1, 2]\n"
    assert run.returncode != 0
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in run.stderr
    assert "scan_records" in run.stderr


def test_sanitizer_detects_undefined_behavior(sanitized: SanitizedPackage, tmp_path: Path) -> None:
    """The modules have no known undefined behavior, so the test builds its own function."""
    source, library = tmp_path / "shift.c", tmp_path / "shift.so"
    source.write_text("int shift(int bits) { return 1 << bits; }\n")
    subprocess.run(["gcc", *FLAGS.split(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    call = f"import ctypes; shift = ctypes.CDLL({str(library)!r}).shift; print(shift(3), flush=True); print(shift(40))"
    run = sanitized.run("-c", call)
    assert run.stdout == "8\n"
    assert run.returncode != 0
    assert "runtime error: shift exponent 40 is too large" in run.stderr
