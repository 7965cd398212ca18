"""Results of evaluations, a small JSON file for each: a table that was cut in pieces.

| file | scores |
|---|---|
| `results_TIME.json` of lm-evaluation-harness 0.4, lighteval | `results: {TASK: {METRIC: ...}}` |
| `..._metrics.json` of Qwen2.5-Math (2024-11), evaluate.py | `acc`, in percent |
| `metadata.json` of verifiers 0.1.8 (vf-eval), in a folder with the model's path | `avg_reward` |
| any other with numbers (`eval_results/global_step_40/math500/metrics.json`) | keys to be mapped |
| files of like names in one folder (`evals/update_00040.json`, `eval-7.json`) | keys to be mapped |
| files of epochs (`eval/epoch_0.json`), where the configuration says M and its epochs | the same |

The step is the number of the folder (`step_0040`, `checkpoint-40`, `RUN__step_0040`), that of the
file (`update_00040`), or what a key in it says; the run what stands above, or what a key says.
A file `base.json` beside those of steps is of step 0.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isocompute.importers.beside.beside import is_beside_one
from isocompute.importers.beside.listed import NAMING
from isocompute.importers.formats.harness import OF_VERIFIERS, is_known, scores_in
from isocompute.importers.runs.collect import Collector
from isocompute.importers.runs.siblings import refuse_two_scores
from isocompute.importers.values.imported import (
    DESIGN,
    OF_CHECKPOINTS,
    Errors,
    ImportedRun,
    Metric,
    UnclearError,
)
from isocompute.importers.values.reading import MAX_LINE_BYTES, flatten, number, parse_json, whole
from isocompute.importers.values.series import STEPS, points_of, step_of
from isocompute.importers.words.called import is_called
from isocompute.importers.words.configuration import configuration, facts_of
from isocompute.importers.words.names import number_in
from isocompute.importers.words.settings import Column, Settings

STEP = re.compile(
    r"(?P<run>(?:.*?[^a-z0-9])??)(?:global_?step|step|checkpoint|ckpt|iter|iteration|update)[-_]?"
    r"(?P<step>[0-9]{1,9})", re.I,
)
_META = "metadata.json"  # of verifiers; others have one of that name, too
# lm-evaluation-harness writes a model's path with __ for /, verifiers with --
_FOLDER = re.compile(rf"{STEP.pattern}(?:(?:__|--).*)?", re.I)
_FILE = re.compile(rf"eval|result|metric|score|acc|summary|_info|{_META}", re.I)
_NO_FILE = re.compile(r"config|token|state|index|args", re.I)
# folders of every run, or of none
_GENERAL = re.compile(
    r"(?:(?:lm|dumped|val)_?)?eval\w*|held_?out|val(?:idation)?|test|results?|outputs?|out|checkpoints?|ckpts?|"
    r"scores|metrics|logs?|\.", re.I,
)  # fmt: skip


_PIECES = 2  # files of like names
_BY_CHANCE = 3  # scores: fewer agree with those of another run now and then
_PRINTED = 1e-4  # scores of one evaluation lie so close, printed or not: half of it is the rounding
_PIECE = re.compile(rf"{STEP.pattern}(?:[-_. ](?P<of>.+))?", re.I)
_EPOCH = re.compile(r"(?P<run>(?:.*?[^a-z0-9])??)epoch[-_]?(?P<step>[0-9]{1,6})"
                    r"(?:[-_. ](?P<of>.+))?", re.I)  # fmt: skip
_EPOCHS = ("epochs", "num_epochs", "num_train_epochs", "total_epochs")
BEGUN = re.compile("base(?:line|_model)?|init(?:ial)?|untrained|before(?:_training)?|start", re.I)
_OF_FOLDER = "metrics.jsonl"  # a log that would go by its folder's name


class Place(NamedTuple):
    """Where a result stands: its run's folder and name, its step, what lies between."""

    home: Path
    run: str
    step: int
    within: str
    doubt: str = ""  # where its name and a key of it say two steps
    epoch: bool = False  # the step is the number of an epoch


class Result(NamedTuple):
    """What was scored of a checkpoint, and where that stands."""

    place: Place
    file: Path
    content: Mapping[str, Any]


def place_of(file: Path) -> Place | None:
    """Run and step of a result; None where no folder above it is of a checkpoint.

    >>> place_of(Path("out/n8/eval_results/global_step_40/math500/metrics.json"))[1:4]
    ('n8', 40, 'math500')
    >>> place_of(Path("out/__ckpt__n8__step_0040/results_1.json"))[1:4]
    ('n8', 40, '')
    >>> place_of(Path("out/ckpt__n8__step_40__actor__hf/results_1.json"))[1:3]
    ('n8', 40)
    """
    if file.suffix != ".json" or not _FILE.search(file.name) or _NO_FILE.search(file.name):
        return None
    parts = file.parts[:-1]
    for i, part in enumerate(parts):
        if (match := _FOLDER.fullmatch(part)) is None:
            continue
        own = re.split("__|--", match["run"].strip("-_. "))[-1]
        above = [own, *reversed(parts[:i])]
        run = next((name for name in above if name and not _GENERAL.fullmatch(name)), "")
        home = Path(*parts[:i], *([match["run"]] if own else []))
        within = [p for p in parts[i + 1 :] if _FOLDER.fullmatch(p) is None]
        return Place(home, run or home.name, int(match["step"]), "/".join(within))
    return None


def results_in(files: Sequence[Path]) -> dict[Path, list[Result]]:
    """Those of the files that are results of checkpoints, by the folder of their run."""
    found: dict[Path, list[Result]] = defaultdict(list)
    pieces: dict[Path, list[Result]] = defaultdict(list)
    begun = dict[Path, Result]()
    alike = Counter(map(_likeness, files))
    for file in files:
        place = place_of(file)
        is_begun = file.suffix == ".json" and BEGUN.fullmatch(file.stem) is not None
        alone = file.suffix != ".json" or (alike[_likeness(file)] < _PIECES and not is_begun)
        if (place is None and alone) or file.stat().st_size > MAX_LINE_BYTES:
            continue
        content, _ = parse_json(file.read_bytes())
        if not isinstance(content, dict) or next(iter(points_of(content)), None) is not None:
            continue
        if file.name == _META and not content.keys() >= OF_VERIFIERS:
            continue
        if is_begun and place is None:
            begun[file.parent] = Result(Place(file.parent, "", 0, ""), file, content)
            continue
        piece = None if place is not None else _place_of_piece(file, content)
        if piece is not None:
            pieces[piece.home].append(Result(piece, file, content))
        elif place is not None:
            found[place.home].append(Result(place, file, content))
    for home, results in pieces.items():
        at = Counter((one.place.step, one.place.within) for one in results)
        if len(results) >= _PIECES and max(at.values()) == 1:  # else they are of several runs
            first = results[0]
            base = begun.get(first.file.parent)
            if base and base.content.keys() == first.content.keys():
                own = first.place._replace(step=0, doubt="", epoch=False)
                results.insert(0, base._replace(place=own))
            found[home] += results
    return found


def _likeness(file: Path) -> tuple[Path, str]:
    """What pieces of one table have in common: their folder, and their names but for numbers."""
    return file.parent, re.sub("[0-9]+", "0", file.name)


def _place_of_piece(file: Path, content: Mapping[str, Any]) -> Place | None:
    """Run and step of one of several files of like names; None where nothing says its step."""
    key = next((key for key in STEPS if whole(content.get(key)) is not None), None)
    match = _PIECE.fullmatch(file.stem) or _EPOCH.fullmatch(file.stem)
    if match is None and (key is None or any(number_in(file.stem, name) for name in DESIGN)):
        return None  # n8.json is of a run
    in_key = None if key is None else whole(content[key])
    in_name = None if match is None else int(match["step"])
    own = "" if match is None else match["run"].strip("-_. ")
    own = "" if _GENERAL.fullmatch(own) else own
    own = next((v for k in NAMING if isinstance(v := content.get(k), str) and v), own)
    folder = own_folder(file.parent)
    between = [] if match is None or not match["of"] else [match["of"]]
    if not own and folder == file.parent and _GENERAL.fullmatch(folder.parent.name):
        between.insert(0, folder.name)  # evals/math500/step_40.json
        folder = own_folder(folder.parent)
    step = in_key if in_key is not None else in_name
    doubt = "" if in_name in (None, step) else (
        f"{file.name} is of step {in_name}, but its {key} says {in_key}"
    )
    scored = any(number(v) is not None for k, v in content.items() if k not in STEPS)
    if step is None or not scored:  # rollouts of a step, say
        return None
    epoch = match is not None and match.re is _EPOCH and in_key is None
    return Place(folder / own, own or folder.name, step, "/".join(between), doubt, epoch)


def own_folder(folder: Path) -> Path:
    """The first folder above that is of a run, and not one that every run has."""
    while _GENERAL.fullmatch(folder.name) and folder != folder.parent:
        folder = folder.parent
    return folder


def models_in(files: Sequence[Path]) -> dict[str, list[Result]]:
    """Results that say no step, by the model that they are of: it may be what a run began with."""
    found: dict[str, list[Result]] = defaultdict(list)
    for file in files:
        named = file.suffix == ".json" and file.name.startswith(("results_", _META))
        if not named or place_of(file) or file.stat().st_size > MAX_LINE_BYTES:
            continue
        content, _ = parse_json(file.read_bytes())
        if not isinstance(content, dict):
            continue
        of = "model" if content.keys() >= OF_VERIFIERS else "model_name"
        if isinstance(model := content.get(of), str):
            found[model].append(Result(Place(file.parent, "", 0, ""), file, content))
    return found


def read_results(
    results: Sequence[Result], settings: Settings,
    models: Mapping[str, Sequence[Result]] | None = None, used: set[Path] | None = None,
) -> list[ImportedRun]:
    """The run whose checkpoints were evaluated.

    Args:
        results: of its checkpoints.
        settings: what its log does not say.
        models: results of models; those of the one that the run began with are of its step 0.
        used: takes their files.
    """
    ordered = sorted(results, key=lambda one: (
        one.place.step, one.file.name, str(one.content.get("date", ""))))  # fmt: skip
    first = ordered[0]
    if settings.split == "train":  # that is of the log's keys; a checkpoint's result is none
        settings = replace(settings, split=None)
    collector = Collector(first.place.run, Errors(str(first.file)), settings)
    doubtful = next((one for one in ordered if one.place.doubt), None)
    if doubtful is not None and settings.step is None:
        key = step_of(doubtful.content)
        raise UnclearError(
            f"{first.place.home}: a result must be of one step, but {doubtful.place.doubt}; add "
            f"--set step={key}, or correct the names."
        )
    home, called = first.place.home, first.place.run
    home = next((above for above in (home, *home.parents) if above.name == called), home)
    own = home.is_dir()
    path = home / _OF_FOLDER if own else home.parent / first.file.name
    kept = ordered[-1].file  # each checkpoint keeps it: NeMo-RL 0.4.0, utils/checkpoint.py
    if is_beside_one(kept):
        collector.configure_beside(kept)
    if None in configuration(collector.configured).design[:2]:  # that of a model
        collector.configure_beside(path, alone=own)
    if not collector.configured:
        collector.configure_beside(kept)
    ordered = _without_common(ordered)
    if any(one.place.epoch for one in ordered):
        ordered = _by_update(ordered, collector)
    if not ordered:
        return []
    began = facts_of(collector.configured).get("model", "")
    if models and began in models and ordered[0].place.step:
        ordered = [*models[began], *ordered]
        collector.counters.infer(f"score: at step 0 that of {began}, with which it began")
        if used is not None:
            used |= {one.file for one in models[began]}
    scores = [(one, *score) for one in ordered
              for score in scores_in(one.content, one.place.within)]  # fmt: skip
    whole_sets = Counter[str]()
    for _, task, _, _, count in scores:
        whole_sets[task] = max(whole_sets[task], count)
    latest: dict[tuple[int, str, Metric], float] = {}
    few = again = 0
    for one, task, metric, value, count in scores:
        if count < whole_sets[task]:  # a trial on a part of the problems
            few += 1
        else:  # of several at one step the latest
            at = one.place.step, task, metric
            again += latest.get(at, value) != value
            latest[at] = value
    several = {task: len({m for _, t, m in latest if t == task}) > 1 for task in whole_sets}
    for (step, task, metric), value in latest.items():
        told = replace(metric, core=not several[task])
        collector.score(Column(metric=told, problem_set=task), step, value, 0)
    if few:
        collector.counters.infer(
            f"score: {few} results on a part of the problems (limit) are left out"
        )
    if again:
        collector.counters.infer(f"score: where one was measured again ({again}), the last counts")
    for line, one in enumerate(ordered, start=1):
        if not is_known(one.content):
            keys = flatten(one.content, separator="/")
            collector.row(one.place.step, {
                f"{one.place.within}/{key}".strip("/"): v for key, v in keys.items()
                if number(v) is not None and (key not in STEPS or key == settings.step)
            }, line)  # fmt: skip
    collector.n_rows = len(ordered)
    run = collector.finish(first.file, "checkpoint-results")
    counts = set(whole_sets.values())
    if len(counts) == 1 and max(counts) and run.provenance.evaluation_problems is None:
        problems = replace(run.provenance, evaluation_problems=max(counts))
        run = replace(run, provenance=problems)
    return [run]


def _without_common(results: Sequence[Result]) -> list[Result]:
    """Results without the folders that all of them lie in, but the last (actor/huggingface)."""
    within = [one.place.within.split("/") for one in results]
    common = sum(1 for _ in takewhile(lambda same: len(set(same)) == 1,
                                      zip(*(parts[:-1] for parts in within), strict=False)))
    return [one._replace(place=one.place._replace(within="/".join(parts[common:])))
            for one, parts in zip(results, within, strict=True)]  # fmt: skip


def _by_update(results: Sequence[Result], collector: Collector) -> list[Result]:
    """Results of epochs at their updates; none where the configuration does not tell these."""
    config = collector.configured
    epochs = next((count for key in _EPOCHS if (count := whole(config.get(key)))), 0)
    planned, last = configuration(config).steps or 0, results[-1].place.step
    late = epochs - last  # an epoch 0 ends with the first of them
    if not epochs or planned % epochs or late not in (0, 1):
        return []
    each = planned // epochs
    collector.counters.infer(
        f"step: an epoch is {each} updates, and the result of epoch {last} is of the last"
    )
    return [one if not one.place.epoch else one._replace(place=one.place._replace(
        step=(one.place.step + late) * each)) for one in results]  # fmt: skip


def with_results(
    runs: Sequence[ImportedRun], evaluated: Sequence[ImportedRun], settings: Settings
) -> list[ImportedRun]:
    """Runs with the scores of their checkpoints, where a log bears the run's name."""
    out, mapped = list(runs), {column.metric.label for column in settings.columns.values()}
    for one in evaluated:
        named = [i for i, run in enumerate(out)
                 if one.name in (run.name, run.name.partition("/")[0])]  # fmt: skip
        alike = [i for i in named if not any(s.split == "validation" for s in out[i].series)]
        if named and not alike and any(_holds(out[i], one) for i in named):
            continue  # the state of a checkpoint, whose scores are in the log
        if not named and (its_log := [i for i, run in enumerate(out) if _is_of(run, one)]):
            told = f"counted once: the same score stands in {one.provenance.path}"
            out[its_log[0]] = out[its_log[0]].inferring(told)
            continue
        if len(alike) != 1:
            for i in named:
                refuse_two_scores(out[i], one, mapped)
            out.append(one)
            continue
        run = out[alike[0]]
        b_p, n = run.problems_per_batch, run.rollouts_per_problem
        batch = np.float64(np.nan if b_p is None or n is None else b_p * n)
        made = tuple(
            replace(s, rollouts_K=s.step_K.astype(np.float64) * batch) for s in one.series
        )
        own, its = one.provenance, run.provenance  # what the rows of the log hold is of training
        unread = [key for key in own.unread if not is_called(key, "problems_per_batch")]
        unread += [key for key in its.unread if key not in its.candidates]
        provenance = replace(its, unread=tuple(unread), likely=own.candidates)
        out[alike[0]] = replace(
            run, series=(*run.series, *made), notes=(*run.notes, *one.notes), provenance=provenance
        ).inferring(*one.provenance.inferred, f"{OF_CHECKPOINTS}{one.provenance.path}")
    return out


def _is_of(run: ImportedRun, one: ImportedRun) -> bool:
    """Whether a run of checkpoints is that of a log of another name: all it says is there."""
    own, its = ({(s.metric.label, s.problem_set) for s in each.series if s.split == "validation"}
                for each in (one, run))  # fmt: skip
    if one.seed is None and sum(s.step_K.size for s in one.series) < _BY_CHANCE:
        return False  # of another seed, it may be: few problems have few scores
    return None not in one.design[:2] and own <= its and _holds(run, one) and (
        one.design == run.design
    )


def _holds(run: ImportedRun, one: ImportedRun) -> bool:
    """Whether a log has all held-out scores of a run's checkpoints, which keep the best (NeMo-RL).

    A console prints four digits.
    """
    at = [dict(zip(s.step_K.tolist(), s.score_K.tolist(), strict=True)) for s in run.series
          if s.split == "validation"]  # fmt: skip
    return all(
        any(abs(known.get(step, np.inf) - score) < _PRINTED for known in at)
        for s in one.series for step, score in zip(s.step_K, s.score_K, strict=True)
    )
