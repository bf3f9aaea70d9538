"""Benchmarks of mend and their helpers."""
