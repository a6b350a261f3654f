"""Layer 4: whole jobs. Each wires edges to stages and is what a command, or a Python caller, runs."""
