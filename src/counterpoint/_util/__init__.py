"""Tools for every room. They know nothing of cases, models or runs.

Errors, lazy registries, progress, the atomic writer, reading of untrusted files, the
content-addressed store, counter-based random numbers. There is no door: modules are imported by
name.
"""
