"""Engines train; each is found by the word that a study file names it by.

Nothing is imported until an engine is asked for, so that `import isocompute` stays free of
torch. Other packages add engines through the entry point group `isocompute.engines`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from isocompute.engines.base import Engine
from isocompute.errors import InputError, NotInstalledError

if TYPE_CHECKING:
    from isocompute.problems import ProblemSet
    from isocompute.study.spec import RunSpec

_GROUP = "isocompute.engines"
_ENGINES = {
    "local": "isocompute.engines.local:LocalEngine",
    "simulator": "isocompute.engines.simulator:SimulatorEngine",
    "trl": "isocompute.engines.trl:TrlEngine",
    "verl": "isocompute.engines.verl:VerlEngine",
    "command": "isocompute.engines.command:CommandEngine",
}
# Problem sets that are made rather than read, by the word after `generated` in a study file.
_GENERATORS = {
    "simulated": "isocompute.engines.simulator:simulated_problems",
    "world": "isocompute.engines.local.worlds:world_problems",
}


def problem_generators() -> dict[str, Callable[..., ProblemSet]]:
    """Functions (name, **options) -> ProblemSet; each loads its engine when it is called."""

    def lazily(target: str) -> Callable[..., ProblemSet]:
        module, _, attribute = target.partition(":")

        def generate(name: str, **options: Any) -> ProblemSet:
            generator = getattr(importlib.import_module(module), attribute)
            known = inspect.signature(generator)
            try:
                known.bind(name, **options)
            except TypeError:
                takes = [n for n, p in known.parameters.items() if p.kind is not p.VAR_KEYWORD]
                raise InputError(
                    f"the options of the generated problems {name!r} must be those that are known, "
                    f"{', '.join(takes[1:])}, but got {', '.join(options) or 'none'}; correct them."
                ) from None
            return cast("ProblemSet", generator(name, **options))

        return generate

    return {word: lazily(target) for word, target in _GENERATORS.items()}


def register_engine(name: str, target: str) -> None:
    """Make an engine known in this process and in the workers that it starts.

    Args:
        name: the word in the study file.
        target: "package.module:Class", importable in a worker process too.

    Raises:
        InputError: if the target is not of that form.
    """
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise InputError(
            f'an engine\'s target must read "package.module:Class", but got {target!r}; '
            "correct the registration."
        )
    _ENGINES[name] = target


def engine_target(name: str) -> str:
    """Where the engine of that name lives, as "package.module:Class".

    Raises:
        InputError: if no engine has that name.
    """
    if name in _ENGINES:
        return _ENGINES[name]
    installed = {e.name: e.value for e in importlib.metadata.entry_points(group=_GROUP)}
    if name in installed:
        return installed[name]
    known = sorted({*_ENGINES, *installed})
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "choose one of them."
    raise InputError(f"`engine` must be one of {', '.join(known)}, but got {name!r}; {hint}")


def load_engine(target: str) -> Engine:
    """The engine at "package.module:Class", constructed.

    Raises:
        NotInstalledError: if a package that it needs is not there.
    """
    module = target.partition(":")[0]
    return cast(Engine, _attribute(target, extra=module.rsplit(".", 1)[-1])())


def takes_whole_machine(names: Iterable[str]) -> bool:
    """Whether one of these engines says so of itself (`engines.base.Engine`)."""
    return any(
        bool(getattr(load_engine(engine_target(name)), "whole_machine", False))
        for name in sorted(set(names))
    )


def evaluations_drawn(spec: RunSpec) -> int:
    """How often the engine of a run evaluates up to its last step (`engines.base.Engine`)."""
    with contextlib.suppress(NotInstalledError):
        own = getattr(load_engine(engine_target(spec.engine)), "evaluations", None)
        return spec.evaluations if own is None else int(own(spec))
    return spec.evaluations


def cautions(spec: RunSpec) -> list[str]:
    """What the engine of a run says before it trains as asked (`engines.base.Engine`)."""
    with contextlib.suppress(NotInstalledError):
        own = getattr(load_engine(engine_target(spec.engine)), "cautions", None)
        return [] if own is None else list(own(spec))
    return []


def embedded_success_counter() -> Callable[..., Any]:
    """`engines.local.base_rates.success_counter`.

    Raises:
        NotInstalledError: if torch is not there.
    """
    target = "isocompute.engines.local.base_rates:success_counter"
    return cast("Callable[..., Any]", _attribute(target, extra="local", what="the embedded engine"))


def _attribute(target: str, *, extra: str, what: str = "") -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        own = next((f"the engine {name}" for name, at in _ENGINES.items() if at == target), "")
        cure = f"pip install 'isocompute[{extra}]'" if what or own else "install it"
        raise NotInstalledError(
            f"{what or own or f'engine {target!r}'} needs the package {error.name!r}, which is not "
            f"installed; {cure}."
        ) from error
