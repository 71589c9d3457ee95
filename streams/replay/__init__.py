"""What people ask for, run on the log: `rules.py` decides, `handler.py` runs it page by page, exactly once."""
