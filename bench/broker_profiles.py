"""Where the time goes in cases that may miss their goal, and what was tried. The notes of the results quote it."""

from bench.harness import Measurement

PROFILES = {
    "round trip": (
        "one request has 4 system calls (epoll_wait, recv, pwrite, send) and no task, timer or thread. perf trace: of "
        "250 us with tracing, 67 us pass between the producer's send and the broker's recv (waking the broker), 71 us "
        "in Python up to pwrite, 52 us in pwrite and Python up to send, 55 us in send and waking the producer. In a "
        "loop the Python code takes 20 us; at 1,000 requests per second its caches are cold, and it takes three "
        "times as long. Tried: compiling all 18 modules of the path with Cython as they are (20 us, no gain). Not "
        "tried: a Produce path in C types, polling instead of sleeping (costs CPU when idle)."
    ),
    "Java": (
        "the client limits it. The broker uses 0.3 to 0.4 cores of the two; the rest is the producer's main thread "
        "(serializing, checksums) and its sender thread. A request has about 10 batches, and a read two requests, so "
        "requests are not small. perf: 71% of the broker's time is in the kernel (pwrite into the page cache, recv, "
        "writing back), 24% in Python, 1% in the checksum."
    ),
    "consume": (
        "librdkafka's thread limits it: it copies 6 MB out of the socket (35% of its time, from memory that is not in "
        "the CPU's cache), then parses them, and sends the next fetch only afterwards, so the broker waits. The broker "
        "takes 84 us to find and encode 6 MB of 6 partitions. Tried: send buffers of 100 KB to 4 MB (200 KB is best: "
        "smaller ones run dry before the broker is awake, larger ones move the kernel's work to the consumer's "
        "thread and leave the cache), sender threads (kept: 330 instead of 990 full sockets per 1.6 GB)."
    ),
    "producers": (
        "the producers limit it: 100 librdkafka clients have 300 threads on two cores; the broker needs a third of "
        "Apache Kafka's CPU."
    ),
}
"""Explanations by a part of the case's name; the first match counts."""


def explain_misses(measurements: list[Measurement]) -> list[str]:
    """Returns a note for each group of cases that missed its goal."""
    missed: dict[str, list[str]] = {}
    for measured in measurements:
        if not measured.reached:
            key = next((key for key in PROFILES if key in measured.name), "")
            missed.setdefault(key, []).append(measured.name)
    return [
        f"Missed: {'; '.join(names)}. {'Where the time goes: ' + PROFILES[key] if key else 'No profile yet.'}"
        for key, names in missed.items()
    ]
