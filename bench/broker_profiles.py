"""Where the time goes in cases that may miss their goal, and what was tried. The notes of the results quote it."""

from collections.abc import Mapping

from bench.harness import Measurement

PROFILES = {
    "round trip": (
        "one request has 4 system calls (epoll_wait, recv, pwrite, send) and no task, timer or thread. Decoding, "
        "checking, appending and encoding are compiled (broker/_fast_produce.pyx), which reduced p50 from 159 to 85 us "
        "(3 alternating rounds). Before, perf trace showed, of "
        "250 us with tracing: 67 us from the producer's send to the broker's recv, 71 us of Python up to pwrite, 52 us "
        "for pwrite and Python up to send, 55 us from send to the producer's recv. The two wake-ups remain, and the "
        "Python code of asyncio's loop and selector, of net.transport, net.connection and of the dispatcher. Not "
        "tried: compiling these; a selector that calls the readers of sockets itself; polling instead of sleeping, "
        "which costs CPU when idle."
    ),
    "consume": (
        "librdkafka has one fetch in flight: its thread copies 6 MB out of the socket (35% of the generator's CPU), "
        "parses them, and only then sends the next fetch. The broker finds and encodes these 6 MB in 84 us. Before, "
        "both sides slept and woke in turns for every full send buffer. Tried: sender threads (kept: 330 instead of "
        "990 full sockets per 1.6 GB), and send buffers of 100 KB to 4 MB. The best size depends on the scheduling: "
        "with real-time priority 400 KB (1527 MB/s, Apache Kafka 1425), with normal scheduling 100 to 200 KB (1295 "
        "to 1353, 400 KB 1042, Apache Kafka 1182; in another run 200 KB 1147, Apache Kafka 1250, Headrace before "
        "1078). Java's consumer had the ratios 1.24 on a busy machine and 0.92 on a quiet one, with the same code; "
        "that was not profiled. Not tried: answering from a compiled Fetch path, reading ahead for cold files."
    ),
    "Java": (
        "in the producer, which uses up both cores: with the start of its JVM it takes 18 to 19 CPU-s per GB, "
        "Headrace 2.7 before and 1.85 with the compiled Produce path, a warm Apache Kafka 3.0 to 3.2. The machine "
        "is 6% idle with either broker, so a broker that needs no CPU at all could reach about 1.17. The producer's "
        "metrics with Headrace and Apache Kafka (medians of 5 alternating rounds, before the compiled path): 124 and "
        "126 MB/s, request latency 3.3 and 3.5 ms, 94.7 and 95.8 records per request, batches of 16,199 and 16,204 "
        "bytes, 299 and 330 ms in the queue. The sending thread waits for I/O about 1.5 and 1.2 s of each run, but "
        "the thread that creates the records never waits for buffer memory, so it does not wait for the broker. "
        "Held-back responses and sizes of socket buffers were therefore not varied. perf of the broker before: 57% "
        "Python, 35% kernel, 2% CRC. With the compiled path, three rounds had the ratios 1.18, 0.85 and 0.91 while "
        "both were a third slower than above. Apache Kafka needs about 3 GB of warm-up: before that it takes 7 to 16 "
        "CPU-s per GB, and the ratio is 1.1 to 2.2."
    ),
    "producers": "not profiled; the generator has 3 threads per client on two cores.",
}
"""Explanations by a part of the case's name; the first match counts."""


def explain_misses(measurements: list[Measurement], profiles: Mapping[str, str] = PROFILES) -> list[str]:
    """Returns a note for each group of cases that missed its goal."""
    missed: dict[str, list[str]] = {}
    for measured in measurements:
        if not measured.reached:
            key = next((key for key in profiles if key in measured.name), "")
            missed.setdefault(key, []).append(measured.name)
    return [
        f"Missed: {'; '.join(names)}. {'Where the time goes: ' + profiles[key] if key else 'No profile yet.'}"
        for key, names in missed.items()
    ]
