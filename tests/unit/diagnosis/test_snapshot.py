import pytest

from headrace.diagnosis.snapshot import brokers, counted, duration, names, number


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(250, "250 ms"), (3_500, "3.5 s"), (720_000, "12 min"), (18_000_000, "5 h"), (172_800_000, "2 days")],
)
def test_duration(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


def test_words() -> None:
    assert (counted(1, "broker"), counted(2000, "broker")) == ("1 broker", "2,000 brokers")
    assert (names([]), names([1]), names([1, 2, 3])) == ("", "1", "1, 2 and 3")
    assert (brokers([2]), brokers([2, 1])) == ("broker 2", "brokers 1 and 2")


def test_number() -> None:
    assert (number("12"), number("x"), number(None)) == (12, None, None)
