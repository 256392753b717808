"""The clients' configuration.

    common, producer, consumer, admin    the tables of keys (`PRODUCER_KEYS`, ...): name, type, default, bounds, text
    table                                parses the arguments of a constructor
    keywords                             the constructors' keyword arguments, typed and documented; generated
    types                                the parsed configuration (`ProducerConfig`, ...), frozen; generated

`make docs` generates the last two, and `docs/clients-configuration.md`, from the tables.
"""
