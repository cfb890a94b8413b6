"""Benchmarks against the real peers, each in its best settings, side by side in one run. Ratios count, not seconds."""
