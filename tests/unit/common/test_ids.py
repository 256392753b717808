import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.common.errors import HeadraceError
from headrace.common.ids import Uuid, make_random, random_uuid

KNOWN = "L4tkSDvtSWyV2FJpQYyZlA"


def test_text_has_kafka_format() -> None:
    """In the format of `kafka-storage random-uuid`."""
    assert str(Uuid(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert str(Uuid(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert str(Uuid(int=2**128 - 1)) == "_____________________w"
    assert Uuid.parse(KNOWN).hex == "2f8b64483bed496c95d85269418c9994"
    assert str(Uuid.parse(KNOWN)) == KNOWN
    assert str(Uuid.parse(KNOWN + "==")) == KNOWN


@given(st.integers(0, 2**128 - 1))
def test_round_trip(number: int) -> None:
    made = Uuid(int=number)
    assert len(str(made)) == 22
    assert Uuid.parse(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        KNOWN[:-1],
        KNOWN + "A",
        KNOWN + "!",
        "!" + KNOWN,
        KNOWN[:-1] + "/",
        KNOWN[:-1] + "+",
        KNOWN[:-1] + "é",
        KNOWN + "\n",
        "2f8b6448-3bed-496c-95d8-5269418c9994",
    ],
)
def test_rejects_other_text(text: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        Uuid.parse(text)
    assert str(refused.value) == f"Invalid id {text!r}: expected 22 characters of URL-safe base64"


def test_seed_repeats_ids() -> None:
    assert random_uuid(make_random(7)) == random_uuid(make_random(7))
    assert random_uuid(make_random(7)) != random_uuid(make_random(8))
    assert random_uuid(make_random()) != random_uuid(make_random())


def test_random_id_does_not_start_with_dash() -> None:
    source = make_random(1)
    made = [random_uuid(source) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {uuid.version for uuid in made} == {4}
    assert not any(str(uuid).startswith("-") for uuid in made)
