"""Time as a ladder of topics: `rules.py` says where a waiting record goes, `handler.py` moves it."""
