from typing import Any

from headrace.console.sessions import LoginLimit, Sessions
from headrace.testing.clock import ManualClock


class Login:
    """Stands for an Identity."""

    def __init__(self, cluster: str):
        self.cluster = cluster


def login(cluster: str = "default") -> Any:
    return Login(cluster)


def test_a_session_ends_when_it_is_idle_or_old() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, idle_seconds=60, max_seconds=200)
    session = sessions.new()
    clock.advance(59_000)
    assert sessions.find(session.id) is session
    clock.advance(59_000)
    assert sessions.find(session.id) is session
    assert sessions.expires_in(session) == 60
    clock.advance(61_000)
    assert sessions.find(session.id) is None
    busy = sessions.new()
    for _ in range(10):
        clock.advance(30_000)
        sessions.find(busy.id)
    assert not sessions.is_live(busy)
    assert len(sessions) == 0


def test_a_login_gives_the_session_a_new_id_and_token() -> None:
    sessions = Sessions(ManualClock(), 60, 200)
    before = sessions.new()
    first, second = login(), login("other")
    session = sessions.log_in(before, first)
    assert session.id != before.id
    assert session.csrf_token != before.csrf_token
    assert sessions.find(before.id) is None
    session = sessions.log_in(session, second)
    assert set(session.identities) == {"default", "other"}
    assert sessions.take_ended() == []
    again = login()
    session = sessions.log_in(session, again)
    assert sessions.take_ended() == [first]
    sessions.log_out(session, "other")
    assert sessions.take_ended() == [second]
    sessions.end_all()
    assert sessions.take_ended() == [again]


def test_an_expired_session_closes_its_logins() -> None:
    clock = ManualClock()
    sessions = Sessions(clock, 60, 200)
    identity = login()
    sessions.log_in(sessions.new(), identity)
    clock.advance(61_000)
    sessions.expire()
    assert sessions.take_ended() == [identity]


def test_new_sessions_do_not_end_logins() -> None:
    sessions = Sessions(ManualClock(), 60, 200)
    session = sessions.log_in(sessions.new(), login())
    for _ in range(10_050):
        sessions.new()
    assert len(sessions) == 10_000
    assert sessions.find(session.id) is session


def test_the_token_is_compared() -> None:
    session = Sessions(ManualClock(), 60, 200).new()
    assert session.has_token(session.csrf_token)
    assert not session.has_token(None)
    assert not session.has_token("")
    assert not session.has_token("é")


def test_failed_logins_are_limited_by_address_and_by_user() -> None:
    clock = ManualClock()
    limit = LoginLimit(clock)
    for _ in range(5):
        assert limit.wait_seconds("address a", "user x") == 0
        limit.failed("address a", "user x")
        clock.advance(1_000)
    assert limit.wait_seconds("address a", "user y") == 55
    assert limit.wait_seconds("address b", "user x") == 55
    assert limit.wait_seconds("address b", "user y") == 0
    clock.advance(56_000)
    assert limit.wait_seconds("address a", "user x") == 0
    for _ in range(5):
        limit.failed("user x")
    limit.succeeded("user x")
    assert limit.wait_seconds("user x") == 0
