"""For those who test: the conformance suite that every engine passes."""

from isocompute.testing.engine import EngineTestCase, Recorder

__all__ = ["EngineTestCase", "Recorder"]
