"""The embedded demo: street scenes with exact labels, and a small network trained on them."""
