"""verl as an engine: configuration rendered, launched locally or on Ray, logs followed."""

from isocompute.engines.verl.engine import VerlEngine
from isocompute.engines.verl.options import VerlOptions
from isocompute.engines.verl.render import override_lines, render_keys, write_files

__all__ = ["VerlEngine", "VerlOptions", "override_lines", "render_keys", "write_files"]
