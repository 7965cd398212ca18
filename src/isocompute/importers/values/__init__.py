"""Bytes to values, in bounded memory; the values that a run is handed over as."""
