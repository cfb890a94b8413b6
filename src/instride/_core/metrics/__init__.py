"""Numbers over time.

meters      counted by the two machines while they work
snapshot    all metrics at one moment, for whoever asks

A partition's lag: `_core/application/partition.py`, `lag`. The end that it counts to: `_core/network/fetcher.py`,
`_take`.
"""
