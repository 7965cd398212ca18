"""Rewards of one run for verl, which imports a copy of this file from the run's folder.

The verifiers lie beside the copy, so any Python can import it; the copy is made by isocompute.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent
_BUNDLE = _FOLDER / "bundle"
if _BUNDLE.is_dir() and str(_BUNDLE) not in sys.path:
    sys.path.insert(0, str(_BUNDLE))

from isocompute.verifiers import load_verifier  # noqa: E402

# A response that the verifier failed on: verl knows no missing reward, and its training dumps keep
# nothing but the score. Too small to move an advantage (1e-24), and no 0.
UNJUDGED = 1e-30
_LOADED: dict[str, Any] = {}
_LOCK = threading.Lock()


def compute_score(
    data_source: str,  # noqa: ARG001  # verl's signature, by keyword
    solution_str: str,
    ground_truth: str,
    **_: Any,
) -> dict[str, Any]:
    """Reward 0 or 1; `verdict` tells a wrong answer from a verifier that failed."""
    problem = json.loads(ground_truth)
    with _LOCK:
        name = problem["verifier"]
        if name not in _LOADED:
            _LOADED[name] = load_verifier(name, folder=_FOLDER)
    outcome = _LOADED[name](solution_str, problem["answer"])
    if outcome.reward is None:
        print(f"isocompute: the verifier failed: {outcome.error}", file=sys.stderr, flush=True)
        return {"score": UNJUDGED, "acc": 0.0, "verdict": f"error: {outcome.error}"}
    return {"score": float(outcome.reward), "acc": float(outcome.reward), "verdict": "judged"}
