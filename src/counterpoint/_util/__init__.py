"""What every room may use, and what knows nothing of cases, models or runs.

Errors, lazy registries, progress, the one atomic writer, reading files that are not trusted, the
content-addressed store, counter-based random numbers. There is no door:
modules are imported by name.
"""
