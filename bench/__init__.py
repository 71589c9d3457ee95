"""How fast it is, beside what the machine under it can do: `python -m bench`."""
