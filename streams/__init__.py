"""Hookline's agents: the log they stand on, what they decide, and the process that runs them."""
