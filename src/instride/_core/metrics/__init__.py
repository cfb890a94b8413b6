"""Numbers over time.

meters      counted by the two machines while they work
snapshot    all metrics at one moment, for whoever asks
"""
