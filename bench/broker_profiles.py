"""Where the time goes in cases that may miss their goal, and what was tried. The notes of the results quote it."""

from bench.harness import Measurement

PROFILES = {
    "round trip": (
        "one request has 4 system calls (epoll_wait, recv, pwrite, send) and no task, timer or thread. perf trace "
        "(tracing lengthens all), of 250 us: 67 us from the producer's send to the broker's recv, 71 us of Python "
        "up to pwrite, 52 us for pwrite and Python up to send, 55 us from send to the producer's recv. The same Python "
        "code takes 20 us in a tight loop; the difference is probably cold caches. Tried: compiling 18 modules of the "
        "path with Cython as they are (20 us, no gain). Not tried: a Produce path in C types; polling instead of "
        "sleeping, which costs CPU when idle."
    ),
    "Java": (
        "not explained. The broker uses 0.2 to 0.3 cores, so it is idle most of the time, and Apache Kafka gets more "
        "out of the same producer with about as much CPU. strace: a request has about 10 batches, and a read returns "
        "two requests, so requests are not small. perf (0.4 s of samples, with the deletion of the topic): 71% kernel, "
        "24% Python, 1% checksum. To do: record the producer's waits with both brokers."
    ),
    "consume": (
        "librdkafka has one fetch in flight: its thread copies 6 MB out of the socket (35% of the generator's CPU), "
        "parses them, and only then sends the next fetch. The broker finds and encodes these 6 MB in 84 us. Before, "
        "both sides slept and woke in turns for every full send buffer. Tried: sender threads (kept: 330 instead of "
        "990 full sockets per 1.6 GB), and send buffers of 100 KB to 4 MB. The best size depends on the scheduling: "
        "with real-time priority 400 KB (1527 MB/s, Apache Kafka 1425), with normal scheduling 100 to 200 KB (1295 "
        "to 1353, 400 KB 1042, Apache Kafka 1182; in another run 200 KB 1147, Apache Kafka 1250, Headrace before "
        "1078). Not tried: answering from a compiled Fetch path, reading ahead for cold files."
    ),
    "producers": "not profiled; the generator has 3 threads per client on two cores.",
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
