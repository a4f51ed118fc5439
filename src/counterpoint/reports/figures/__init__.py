"""The figures of a report, each from the numbers that its CSV holds."""
