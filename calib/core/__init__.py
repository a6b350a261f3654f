"""Layer 1: pure functions on arrays and graphs. No I/O, no global state."""
