"""Figures for papers (matplotlib) and one self-contained interactive HTML report (Plotly)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute.report.html import render_report
    from isocompute.report.study_data import StudyView, study_view

# Loaded on first use: matplotlib, jinja2 and the Plotly bundle are heavy.
_HOME = {"render_report": "html", "StudyView": "study_data", "study_view": "study_data"}

__all__ = ["StudyView", "render_report", "study_view"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'isocompute.report' has no attribute {name!r}")
    return getattr(importlib.import_module(f"isocompute.report.{_HOME[name]}"), name)
