"""Check-ups: pure functions from the facts of a machine to findings."""
