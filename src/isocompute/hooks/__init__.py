"""`isocompute.Recorder` inside trainers: each module is loaded by that trainer's own Python."""
