"""Attacks on a broker: what a well-behaved client notices meanwhile, and how much memory the broker takes.

Each attack gets a broker of its own in its own process. A well-behaved client (its own process too, `well_behaved`)
produces one record with acks=1 every 10 ms. The broker's memory is its resident set, read from /proc before the attack,
and the peak of it until the attack is over.

    make bench hostile
    python -m bench hostile [--only TEXT] [--quick]

`--only` runs the attacks whose name contains the text, and replaces only their rows in the results. `--quick` runs
small versions, only on Headrace, and writes no results.

To add a row, write a subclass of `attack.Attack` in a module of this package, and add an instance to `ATTACKS` in
`attacks.py`. Most attacks define only a name and `run(side)`, which attacks and returns the outcome in a few words:

    class Slowloris(Attack):
        name = "1,000 connections that send one byte a second"

        def run(self, side: Side) -> str:
            ...
            return "all closed after 30 s"

`prepare(side)` runs before the measurement (creates topics, encodes large frames). `properties` are broker configs for
the attack. `peer = False` leaves out Apache Kafka. `max_wait_ms` and `max_memory_mb` are the requirements; the table
says which were missed. An attack that is not made on a running broker (startup, shutdown, a full disk) overrides
`measure`, and one with several rows `rows` and `row_names`. `quick` is True in the small version.
"""
