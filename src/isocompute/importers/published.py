"""The curves of published scaling laws, which are shipped with the package."""

from __future__ import annotations

from importlib import resources

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.tables.tidy import curves_of
from isocompute.importers.words.settings import Settings


def load_published(name: str) -> list[Curve]:
    """Curves shipped with the package, for example "qwen2.5-7b-easy".

    Args:
        name: a panel (one B_p: 32, or what "-bp64" and "-bp256" say), or its difficulty's
            "-joint", all panels of it together.

    Raises:
        InputError: for an unknown name; lists the known ones.
    """
    folder = resources.files("isocompute") / "data" / "published"
    panels = sorted(f.name[:-4] for f in folder.iterdir() if f.name.endswith(".csv"))
    known = {panel: [panel] for panel in panels}
    for panel in panels:
        together = [p for p in panels if p.startswith(panel)]
        if len(together) > 1:
            known[f"{panel}-joint"] = together
    if name not in known:
        names = ", ".join("published:" + k for k in sorted(known))
        raise InputError(
            f"a published sweep must be one of {names}, but got {'published:' + name!r}; "
            "choose one of them."
        )
    curves = []
    for panel in known[name]:
        with resources.as_file(folder / f"{panel}.csv") as path:
            # dots read off a figure: two may lie on one point
            curves += curves_of(path, (0.0, 1.0), {}, Settings(), copies=True)
    difficulty = "easy" if "-easy" in name else "hard"
    curves.sort(key=lambda c: (c.problems_per_batch, c.rollouts_per_problem))
    return [c.replace(metric="avg@4", problem_set=difficulty) for c in curves]
