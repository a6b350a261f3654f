"""Layer 0: the values that pass between the stages. No I/O, no computation beyond what a field implies."""
