"""The payment channels: one small interface, an adapter over HTTP, and the agent that calls them."""
