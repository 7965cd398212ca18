"""The configuration of a run: beside its log, or elsewhere in the folder that was given."""
