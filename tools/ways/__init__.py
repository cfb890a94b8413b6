"""See `__main__`."""
