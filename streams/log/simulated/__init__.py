"""A simulated log, clock and network: the machine that runs on Kafka runs here too, from a seed, days in a second."""
