"""One bit turned over somewhere in what a study has on disk."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from attack import ground
from attack.process import Call, Verdict, call, content, difference

# Where, in which study, and what is then asked: the books as they are, those after resumption,
# or those after training on with twice the budget.
PLACES: tuple[tuple[str, str, str], ...] = (
    ("simulated", "study/study.db", "books"),
    ("simulated", "study/study.db", "books"),
    ("trained", "study/study.db", "books"),
    ("unjudged", "study/study.db", "books"),
    ("unjudged", "study/study.db", "books"),
    ("imported", "study/study.db", "books"),
    ("imported", "study/study.db", "books"),
    ("simulated", "study/study.db", "longer"),
    ("simulated-cut", "study/study.db", "resumed"),
    ("simulated-cut", "study/study.db", "resumed"),
    ("journal", "study/study.db", "resumed"),
    ("journal", "study/study.db-journal", "resumed"),
    ("journal", "study/study.db-journal", "resumed"),
    ("simulated", "study/checkpoints/*/*/*", "longer"),
    ("simulated-cut", "study/checkpoints/*/*/*", "resumed"),
    ("trained", "study/checkpoints/*/*/*", "longer"),
    ("trained-cut", "study/checkpoints/*/*/*", "resumed"),
    ("simulated-cut", "study/progress/*", "resumed"),
    ("simulated", "train.jsonl", "longer"),
    ("simulated-cut", "validation.jsonl", "resumed"),
)


def trial(folder: Path, number: int, rng: random.Random) -> tuple[str, Verdict]:
    """Turn one bit over, then ask."""
    study, pattern, question = PLACES[number % len(PLACES)]
    origin = folder / "ground" / study
    if study == "journal":
        origin = rng.choice(sorted(origin.iterdir()))
    files = [path for path in sorted(origin.glob(pattern)) if path.stat().st_size]
    path = rng.choice(files).relative_to(origin)
    work = folder / "flip"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(origin, work)
    shutil.rmtree(work / "books", ignore_errors=True)
    data = bytearray((work / path).read_bytes())
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    data[place] ^= 1 << bit
    (work / path).write_bytes(data)
    name = f"{origin.relative_to(folder / 'ground')}/{path}, byte {place}, bit {bit}: {question}"
    return name, _ask(folder, work, study.partition("-")[0], question)


def _ask(folder: Path, work: Path, study: str, question: str) -> Verdict:
    """What the commands say, and whether the books are right."""
    right = folder / "ground" / ("simulated" if study == "journal" else study)
    doctor = None
    if question == "books":
        doctor = call("doctor", "study", cwd=work)
        if (fault := doctor.fault()) or doctor.code not in (0, 1):
            return fault or doctor.refusal()
    else:
        more = (ground.longer(work),) if question == "longer" else ()
        ran = call(*ground.RUN, *more, cwd=work)
        if fault := ran.fault():
            return fault
        if ran.code != 0:
            return _refused_run(ran)
        if question == "longer":
            right = right / "longer"
    imported = study == "imported"
    target = "books.csv" if imported else "books"
    export = ("export", "study", "-o", target) if imported else ground.EXPORT
    exported = call(*export, cwd=work)
    if fault := exported.fault():
        return fault
    if exported.code != 0:
        if doctor is not None and doctor.code == 0:
            return Verdict(verdict="silent", seen=f"doctor found nothing, but {exported.tail()}")
        return exported.refusal()
    if unlike := difference(content(right / target), content(work / target)):
        found = "" if doctor is None or doctor.code == 0 else " (doctor found it)"
        return Verdict(verdict="silent", seen=unlike + found)
    return Verdict(verdict="right", seen="" if doctor is None else doctor.tail()[:100])


def _refused_run(ran: Call) -> Verdict:
    """A run may also end with a failed run, which is said in lines of its own."""
    if ran.code == 1 and any(word in ran.out + ran.err for word in (" failed", " invalid")):
        return Verdict(verdict="refused", seen=ran.tail())
    return ran.refusal()
