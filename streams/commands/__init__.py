"""What operators type: looking deliveries up, dead letters and replays, publishing by hand."""
