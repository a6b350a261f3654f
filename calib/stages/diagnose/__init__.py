"""Diagnose: where two networks part, at which tensor the error is born, and what caused it. Pure, given a runtime."""
