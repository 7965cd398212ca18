"""Rows to a run: its unit of steps, its B_p and n; which records and logs are one run."""
