"""The `security` benchmark: tiny loads yield plausible figures; no speed is checked."""

from pathlib import Path

from bench import security

TINY = security.Sizes(megabytes=1, warmup=0, connections=4, requests=100, settle_seconds=0)


def test_costs(tmp_path: Path) -> None:
    """Both sides are Headrace, which needs no download."""
    kinds = (security.SecureHeadrace, security.SecureHeadrace)
    measurements, notes = security.run(tmp_path, 1, sizes=TINY, kinds=kinds)
    assert [measured.name for measured in measurements if "CPU" not in measured.name] == [
        *(
            f"{listener}: {case}"
            for listener in ("PLAINTEXT", "SSL", "SASL_SSL")
            for case in ("produce, 16 KB batches", "consume")
        ),
        *(f"{listener}: new connections" for listener in ("PLAINTEXT", "SSL", "SASL_SSL")),
    ]
    assert sum("CPU" in measured.name for measured in measurements) == 12
    assert all(measured.ours > 0 and measured.theirs > 0 for measured in measurements)
    assert sum("TLS costs" in note for note in notes) == 2
