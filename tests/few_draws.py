"""Fits with few draws: import `few_draws` into a module to have them in all its tests.

For tests of what a fit says and of what is done with it. How often intervals hold, and what the
shipped number of draws gives, is tested where no number of draws is changed.
"""

from __future__ import annotations

import pytest

from isocompute.answers import fit_sweep


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the draws of fits and of their back-tests."""
    monkeypatch.setitem(fit_sweep.__kwdefaults__, "draws", 100)
