"""Layer 3: the edges. Files, runtimes, plugins, reports: everything that does I/O."""
