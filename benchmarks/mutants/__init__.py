"""Lines broken on purpose, and whether a test notices; see `__main__`."""
