"""The log layer: hands out records, takes Outcomes, loses nothing; `machine.py` is its heart."""
