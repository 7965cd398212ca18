"""Readers of logs: what trainers, trackers and loops of one's own write, a module for each kind."""
