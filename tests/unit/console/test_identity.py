import asyncio

import pytest

from headrace.client.errors import KafkaTimeoutError
from headrace.console import identity as module
from headrace.console.identity import Identity
from headrace.console.settings import ClusterSettings
from headrace.console.visibility import Visibility
from headrace.testing.clock import ManualClock

SEEN = Visibility(frozenset({"orders"}), frozenset(), frozenset())


def test_what_was_visible_stays_visible_while_the_cluster_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Visibility | Exception] = []

    async def answer(admin: object) -> Visibility:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module, "read_visibility", answer)

    async def run() -> None:
        is_reachable = True
        settings = ClusterSettings(name="c", servers="127.0.0.1:1", config={"security.protocol": "SASL_PLAINTEXT"})
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "alice", "sasl.password": "x"}
        identity = Identity(settings, ManualClock(), "User:alice", login, is_reachable=lambda: is_reachable)
        answers.append(KafkaTimeoutError("no answer"))
        with pytest.raises(KafkaTimeoutError):
            await identity.visibility()
        answers.append(SEEN)
        assert await identity.visibility() is SEEN
        identity.forget_visibility()
        answers.append(KafkaTimeoutError("no answer"))
        assert await identity.visibility() is SEEN
        is_reachable = False
        assert await identity.visibility() is SEEN, "the cluster is not asked"
        is_reachable = True
        other = Visibility(frozenset(), frozenset(), frozenset())
        answers.append(other)
        assert await identity.visibility() is other
        await identity.close()

    asyncio.run(run())
