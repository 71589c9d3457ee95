"""From an event to a merchant's 2xx: `rules.py` decides, `handler.py` plans and concludes, `client.py` posts."""
