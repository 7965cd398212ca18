"""The command that started a run, in a script beside its log: a configuration as any other.

`train.sh --rollout_batch_size 128 --seed 1`, `data.train_batch_size=64`, and in Python
`GRPOConfig(num_generations=8)`. A script is of the run that it names: in its own name
(`run-NAME.sh`), or in a word of it (`--save_path /ckpt/NAME`). One that starts
several runs, also in a loop (`for n in 4 8; do`), says each one's in its own command. One that
names it by a variable of its caller (`N=8 sbatch launch.sh`, `--save_path /ckpt/qwen_n$N`,
`output_dir=f"out/n{n}"`) says those of the runs whose names are of that form.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.beside.elsewhere import (
    LEVELS,
    NAMED_IN,
    PLACED_IN,
    SETTINGS_IN,
    configuration_elsewhere,
    content,
    contradicts,
    is_telling,
    tells,
)
from isocompute.importers.values.reading import until_it_changes
from isocompute.importers.words.paths import run_name

_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch", ".py")
_FOLDERS = ("", "scripts", "script", "launch", "jobs", "slurm", "sbatch", "bin", "examples")
_MOST, _LONGEST = 200, 1 << 18  # scripts of a folder; bytes of one, a trainer's own code is longer
_STARTS = re.compile(r"(?:run|train|launch|start|submit|job|sbatch|slurm)[-_. ]", re.I)
_NAME = r"[A-Za-z][\w.-]{0,80}"
_VALUE = r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s'\"\\,()]+)"
_OPTION = re.compile(rf"(?<![\w-])--({_NAME})[ \t=]+(?!-)(?:\\\n\s*)?{_VALUE}")
_OVERRIDE = re.compile(rf"(?<![\w./$-])\+{{0,2}}([A-Za-z_]\w*(?:\.\w+)+)={_VALUE}")
_KEYWORD = re.compile(rf"(?<![\w.])([a-z]\w{{1,60}})\s*=\s*{_VALUE}(?=\s*[,)])")
_SET = re.compile(rf"^\s*(?:export )?([A-Za-z_]\w*)={_VALUE}\s*(?:#.*)?$", re.M)
_LOOP = re.compile(r"for\s+([A-Za-z_]\w*)\s+in\s+(.*)$")
_BLOCK = re.compile(r"(?:for|while|until)\b")
_BRANCH = re.compile(r"(?:if|case)\b|(?:function\s+)?[\w-]+\s*\(\)")
_USED = re.compile(r"\$\{?(\w+)\}?")
_CALLED_WITH = r"[0-9.]+[eE]-[0-9]+|[A-Za-z0-9.]+"  # a caller's variable in a name: 1e-6, 8, base
_DEFAULT = re.compile(r"\$\{(\w+):?-[^}]*\}")
# What a job writes; under any other name may lie another project's runs of the same names.
_OF_RUNS = ("", "outputs", "output", "out", "runs", "results", "checkpoints", "ckpts", "multirun",
            "experiments", "exps", "exp", "configs", "config", "conf")  # fmt: skip
# ARGS=( --a 1 ) over several lines, and its place in a command
_ARRAY = re.compile(r"^[ \t]*([A-Za-z_]\w*)\+?=\(([^()]*)\)[ \t]*(?:#.*)?$", re.M)
_EXPANDED = re.compile(r"\"?\$\{(\w+)\[[@*]\]\}\"?")
_PRODUCT = re.compile(r"\$\(\(([\w ${}]+(?:\*[\w ${}]+)+)\)\)")
_ADDED = re.compile(r"\$\{?[@*]")  # what a caller appends to the command
_SLURM = re.compile(r"^#SBATCH\s+-{1,2}(array|output|job-name|[aoJ])[ =]?(\S+)", re.M)
_TASK = re.compile(r"\$\{?SLURM_ARRAY_TASK_ID\}?")  # its place in a command, and in an array
_ELEMENT = re.compile(rf"\$\{{(\w+)\[{_TASK.pattern}\]\}}")
_COMMENT = re.compile(r"^\s*#.*$|\s#[^'\"\n]*$", re.M)


_NAMES = re.compile(rf"\b(?:{'|'.join((*NAMED_IN, *PLACED_IN))}) ?=")


class _Script(NamedTuple):
    file: Path
    words: frozenset[str]  # the last parts of the paths in it
    said: dict[str, object]
    text: str


def configuration_naming(
    path: Path, run: str, within: Path | None
) -> tuple[str, Mapping[str, object]] | None:
    """What names a run: a script, else a file of settings, else a script by a variable of its."""
    if (own := configuration_launched(path, run, within, called=False)) is not None:
        return own
    found = configuration_elsewhere(path, run, within)
    return (configuration_launched(path, run, within) if found is None
            else overridden(path, run, within, found, whose=True))  # fmt: skip


def configuration_launched(
    path: Path, run: str, within: Path | None = None, *, base: str = "",
    called: bool = True, whose: bool = False,
) -> tuple[str, Mapping[str, object]] | None:
    """The name and the settings of the one script that names a run; None where none or several do.

    Args:
        path: of the log.
        run: its name.
        within: the folder that was given: not further than the one above it.
        base: a file that its command has to name.
        called: also a script that names it by a variable of its caller.
        whose: the file names the run, so that its command need not.
    """
    for folder in list(path.parents)[: 1 + LEVELS]:
        if within is not None and folder in list(within.parents)[1:]:
            return None
        there = _scripts(folder)
        scripts = [one for one in there if base or tells(one.said)]
        if not there:
            continue
        titled = [one for one in scripts if _STARTS.sub("", one.file.stem, count=1) == run]
        found = titled or [one for one in scripts if is_telling(run) and (
            run in one.words or (path.name.startswith(f"{run}.") and path.name in one.words)
        )]  # fmt: skip
        by_call = there if called else []
        found = found or [own for one in by_call if (own := _called(one, run)) is not None]
        of_base = [one for one in there if base in one.words] if base else []
        found = of_base if whose else [one for one in found if not base or one in of_base]
        if len({one.file for one in found}) == 1:
            said, named = _with_file(_alike([one.said for one in found]), found[0])
            more = ", whose caller may add settings," if _ADDED.search(found[0].text) else ""
            return None if contradicts(said, run) else (
                f"{os.path.relpath(found[0].file, path.parent)}{named}{more}", said
            )
        if found:
            return None
    return None


def overridden(
    path: Path, run: str, within: Path | None, found: tuple[str, dict[str, object]],
    *, whose: bool = False,
) -> tuple[str, dict[str, object]]:
    """A configuration beside a log as the command changed it that names both its file and run.

    Of a file that says `whose` it is, the command need not name the run.
    """
    base = found[0].rpartition("/")[2]
    if whose and not is_telling(base.rpartition(".")[0]):
        return found
    command = configuration_launched(path, run, within, base=base, whose=whose)
    return found if command is None else (
        f"{found[0]} and {command[0]}", {**found[1], **command[1]}
    )


def _called(one: _Script, run: str) -> _Script | None:
    """A script with its caller's variables as a run's name says them; None where it is not of it.

    >>> text = "train --group-size $N --lr 1e-6 --out a/qwen_n${N}"
    >>> own = _called(_Script(Path("x.sh"), _words(text), {}, text), "qwen_n8")
    >>> own and own.said
    {'group_size': '8', 'lr': '1e-6', 'out': 'a/qwen_n8'}
    """
    placed = _words("\n".join(value for key, value in _settings(one.text)
                              if key.rpartition(".")[2] in (*NAMED_IN, *PLACED_IN)))  # fmt: skip
    for word in sorted(one.words):
        names = _USED.findall(word)
        if not names or not re.search("[A-Za-z]" if word in placed else "[A-Za-z]{2}",
                                      _USED.sub("", word)):  # fmt: skip
            continue
        literal = _USED.split(word)[::2]
        form = re.escape(literal[0])
        for i, (name, rest) in enumerate(zip(names, literal[1:], strict=True)):
            again = name in names[:i]
            form += (f"(?P=v{name})" if again else f"(?P<v{name}>{_CALLED_WITH})") + re.escape(rest)
        if match := re.fullmatch(form, run):
            text = _put(one.text, {name[1:]: value for name, value in match.groupdict().items()})
            said = said_in(text)
            return one._replace(said=said, text=text) if tells(said) else None
    return None


def folders_of(path: Path, run: str) -> list[Path]:
    """Folders of a run's name near its log, as outputs/NAME beside logs/NAME.jsonl."""
    near = list(path.parents)[:2] if is_telling(run) else []
    found = (folder / name / run for folder in near for name in _OF_RUNS)
    return [home for home in dict.fromkeys(found) if home.is_dir() and home not in path.parents]


@until_it_changes
def _scripts(folder: Path) -> list[_Script]:
    """Scripts of a folder, and of those for scripts in it, that say B_p or n, or may by a call."""
    homes = [home for name in _FOLDERS if (home := folder / name).is_dir()]
    named = [home / name for home in homes for name in sorted(os.listdir(home))
             if name.endswith(_ENDINGS)]  # fmt: skip
    files = [file for file in named[:_MOST] if file.is_file() and file.stat().st_size < _LONGEST]
    read = [(file, _plain(file.read_text("utf-8", "replace"))) for file in files]
    scripts = list[_Script]()
    for file, text in read:
        in_python = file.suffix == ".py"
        parts = [] if in_python else commands_in(text)
        calls = _calls(text) if in_python else []
        several = [_Script(file, _words(one), said, one)
                   for one in parts if tells(said := said_in(one))]  # fmt: skip
        alone = _Script(file, _words(text), said_in(text), text)
        scripts += [_Script(file, _words(one), said, one) for one in parts
                    if _files_of(said := said_in(one)) and not tells(said)]  # fmt: skip
        by_call = bool(parts) and any("$" in word for word in alone.words)
        scripts += several if len(several) > 1 else [alone] * (tells(alone.said) or by_call)
        scripts += [_Script(file, _words(call), {}, call) for call in calls]
        scripts += [_Script(file, frozenset([name]), {}, own) for name, own in _tasks(file, text)]
    return scripts


def _tasks(file: Path, text: str) -> Iterator[tuple[str, str]]:
    r"""What each task of a Slurm array calls its log, and the script as it is for that task.

    >>> text = "#SBATCH -a 0-1\n#SBATCH -o %x-%A_%a.out\nNS=(4 8)\n"
    >>> text += "run --n ${NS[$SLURM_ARRAY_TASK_ID]}"
    >>> [(name, own[-9:]) for name, own in _tasks(Path("go.sh"), text)]
    [('go.sh-${JOB}_0', 'run --n 4'), ('go.sh-${JOB}_1', 'run --n 8')]
    """
    said = {option[0].lower(): value for option, value in _SLURM.findall(text)}
    name, tasks = (said.get(key, "") for key in "oa")
    tasks, name = tasks.partition("%")[0], name.rpartition("/")[2]
    if not re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", tasks) or "%a" not in name:
        return
    ends = [[int(end) for end in part.split("-")] for part in tasks.split(",")]
    arrays = {array: _COMMENT.sub("", words).split() for array, words in _ARRAY.findall(text)}
    for task in [task for end in ends for task in range(end[0], end[-1] + 1)][:_MOST]:
        there = {array: words[task] for array, words in arrays.items() if task < len(words)}
        called = name
        for sign, value in zip("xaAj", (said.get("j", file.name), str(task), "${JOB}", "${JOB}"),
                               strict=True):  # fmt: skip
            called = called.replace(f"%{sign}", value)
        own = _ELEMENT.sub(partial(_element, there), text)
        yield run_name(Path(called)), _TASK.sub(str(task), own)


def _element(there: Mapping[str, str], one: re.Match[str]) -> str:
    return there.get(one[1], one[0])


def _with_file(
    said: Mapping[str, object], script: _Script
) -> tuple[dict[str, object], str]:
    """Settings of a command over those of the files that it names, and these in words.

    What it sets to a variable of its caller is not the file's. accelerate's own file has processes.
    """
    home = script.file.parent
    places = ([home / name, home.parent / name] for name in _files_of(said))
    files = [file for of in places if (file := next(filter(Path.is_file, of), None))]
    every = {key: value for file in files for key, value in content(file).items()}
    every |= dict.fromkeys(key for key, _ in _settings(script.text))
    return {**every, **said}, "".join(f", with {file.name}" for file in files)


def _files_of(said: Mapping[str, object]) -> list[str]:
    """The files of settings that a command names."""
    named = [str(value) for key, value in said.items() if key in ("config_file", "config")]
    return [name for name in named if name.endswith(SETTINGS_IN)]


def _plain(text: str) -> str:
    r"""A script with arrays and products in their places, without defaults of variables.

    >>> _plain("A=(\n --n 8\n --lr 1  # low\n)\nB=4\nC=$((B * 3))\nrun ${A[@]} x.batch=$C")
    '\nB=4\nC=12\nrun --n 8 --lr 1 x.batch=$C'
    """
    text = _DEFAULT.sub(r"${\1}", text)
    arrays: dict[str, str] = {}
    for name, words in _ARRAY.findall(text):
        arrays[name] = " ".join([arrays.get(name, ""), *_COMMENT.sub("", words).split()]).strip()
    used = {name for name in _EXPANDED.findall(text) if name in arrays}
    text = _ARRAY.sub(lambda one: "" if one[1] in used else one[0], text)
    text = _EXPANDED.sub(lambda one: arrays.get(one[1], one[0]), text)
    return _computed(text)


def _computed(text: str) -> str:
    """A script with its products of known numbers as numbers."""
    variables = _variables(text)

    def known(one: re.Match[str]) -> str:
        parts = [variables.get(part.strip(" ${}"), part.strip()) for part in one[1].split("*")]
        return str(prod(map(int, parts))) if all(map(str.isdecimal, parts)) else one[0]

    return _PRODUCT.sub(known, text)


def _variables(text: str) -> dict[str, str]:
    """Variables of a script that have one value."""
    found: dict[str, set[str]] = {}
    for name, value in _SET.findall(text):
        found.setdefault(name, set()).add(value.strip("'\""))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _alike(said: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What commands say, without what two of them say differently."""
    every = {key: {str(one[key]) for one in said if key in one} for one in said for key in one}
    return {key: values.pop() for key, values in every.items() if len(values) == 1}


def commands_in(text: str) -> list[str]:
    r"""The commands of a shell script, a loop over words unrolled, variables in their places.

    >>> commands_in("B=64\nfor n in 4 8; do\n  train --n $n --b $B \\\n --out run_$n\ndone")
    ['train --n 4 --b 64   --out run_4', 'train --n 8 --b 64   --out run_8']
    """
    text = re.sub(r"\\\n", " ", _COMMENT.sub("", text))
    lines = [line.strip() for line in re.split(r"\n|;(?=\s*(?:do|done|then|fi)\b)", text)]
    found: list[str] = []
    lines = [re.sub(r"^(?:do|then|else)(?:\s+|$)", "", line) for line in lines]
    _unroll(lines, {}, found)
    return found


def _unroll(lines: Sequence[str], known: dict[str, str], found: list[str]) -> None:
    branches, at = 0, 0  # of `if`: which of them holds is not known
    while at < len(lines) and len(found) < _MOST:
        line, at = lines[at], at + 1
        if loop := _LOOP.match(line):
            depth, end = 1, at
            while end < len(lines) and depth:
                depth += bool(_BLOCK.match(lines[end])) - bool(re.match(r"done\b", lines[end]))
                end += 1
            words = _put(loop[2], known).split()
            for word in words if "$" not in loop[2] or "$" not in " ".join(words) else [""]:
                inner = {**known, loop[1]: word.strip("'\"")} if word else known
                _unroll(lines[at : end - 1], inner, found)
            at = end
        elif _BRANCH.match(line):
            branches += 1
        elif re.match(r"(?:fi|esac|\})(?:\s|$)", line):
            branches -= 1
        elif (is_set := _SET.match(line)) and is_set.end() == len(line):
            value = _put(is_set[2].strip("'\""), known)
            if branches and known.get(is_set[1], value) != value:
                value = f"${is_set[1]}"
            known[is_set[1]] = value
        elif line:
            found.append(_put(line, known))


def _calls(text: str) -> list[str]:
    """Calls in Python that name a run by a variable of theirs, as a shell would write them.

    >>> _calls('x = GRPOConfig(num_generations=a.n, seed=1, output_dir=f"out/n{a.n}")')
    ['--num_generations "${n}" --seed "1" --output_dir "out/n${n}"']
    """
    if not _NAMES.search(text):  # most Python is of something else, and slow to parse
        return []
    try:
        tree = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    calls = [{str(k.arg): k.value for k in one.keywords} for one in tree
             if isinstance(one, ast.Call)]  # fmt: skip
    named = [one for one in calls if any(
        isinstance(one.get(key), ast.JoinedStr) for key in (*NAMED_IN, *PLACED_IN)
    )]  # fmt: skip
    return [" ".join(f'--{key} "{said}"' for key, value in one.items() if (said := _said(value)))
            for one in named]  # fmt: skip


def _said(value: ast.expr) -> str:
    """A constant, a formatted string or a variable as a shell writes it; "" for anything else."""
    match value:
        case ast.Constant():
            return str(value.value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"${{{name}}}"
        case ast.FormattedValue():
            return _said(value.value)
        case ast.JoinedStr():
            return "".join(map(_said, value.values))
    return ""


def _put(text: str, known: Mapping[str, str]) -> str:
    return _USED.sub(lambda use: known.get(use[1], use[0]), text)


def _words(text: str) -> frozenset[str]:
    parts = re.split(r"[\s'\"=,:()]+", text)
    return frozenset(part.rstrip("/").rpartition("/")[2] for part in parts)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Names and values as a script has them."""
    for form in (_OPTION, _OVERRIDE, _KEYWORD):
        for key, value in form.findall(text):
            yield key.replace("-", "_"), value.strip("'\"")


def said_in(text: str) -> dict[str, object]:
    r"""Settings in a script; without those that it says twice, or in a variable of its caller.

    >>> said_in("N=8\ntrain.py --n-samples $N --lr 1e-6 data.seed=3 --out $1 --lr 2e-6")
    {'n_samples': '8', 'data.seed': '3'}
    >>> said_in("GRPOConfig(num_generations=8, output_dir='out')")
    {'num_generations': '8', 'output_dir': 'out'}
    """
    text = _computed(_COMMENT.sub("", text))
    variables = _variables(text)
    found: dict[str, set[str]] = {}
    for key, value in _settings(text):
        found.setdefault(key, set()).add(_put(value, variables))
    return {key: value for key, values in found.items()
            if len(values) == 1 and "$" not in (value := next(iter(values)))}  # fmt: skip
