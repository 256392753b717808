"""Where the time goes in cases of the cluster benchmark that may miss their goal. The notes of the results quote it."""

PROFILES: dict[str, str] = {
    "consume": (
        "in the consumer and in the scheduling of the shared cores, not in the brokers. py-spy (200 samples a second, "
        "with native frames) of a broker that serves a third of the partitions: its event loop sleeps in epoll_wait in "
        "67% of the samples and sends with sendfile in 16%, which leaves 17% for all Python code; its sender threads "
        "wait for the consumer to empty its socket. The brokers take 0.5 CPU-s per GB and the generator about as much."
    ),
    "produce of one record": (
        "each record is a request of its own on the leader, plus two fetches and two responses of followers. "
        "py-spy of the leader: 84% in requests, of these half in Produce. Scanning all waiting produces at each append "
        "took 28% when it was saturated, until appends that do not advance the high watermark skipped it. Not tried: "
        "the compiled Produce path for partitions with followers; it serves only partitions with one replica."
    ),
}
"""Explanations by a part of the case's name; the first match counts."""
