"""Reading a layout as a user would: its curves, or what is said instead of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.words.settings import load_settings
from isocompute.sources import load_curves


def load(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: Any
) -> list[Curve]:
    return load_curves([str(source)], settings=load_settings([*sets], [*maps]), **options)


def refused(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: Any
) -> str:
    with pytest.raises(InputError) as caught:
        load(source, maps, sets, **options)
    return str(caught.value)
