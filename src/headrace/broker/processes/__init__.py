"""Several brokers of one cluster on one machine, each in its own process: `headrace server --processes N`."""
