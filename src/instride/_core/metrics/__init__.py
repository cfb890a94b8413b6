"""Numbers over time: kept by the two machines while they work, read by whoever asks."""
