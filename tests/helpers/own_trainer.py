"""A trainer of ten lines: python own_trainer.py B_P N STEPS SEED RATE FOLDER [--resume]"""

import json
import sys
from pathlib import Path
from random import Random

b_p, n, steps, seed = map(int, sys.argv[1:5])
log = Path(sys.argv[6]) / "metrics.jsonl"
done = len(log.read_text().splitlines()) if "--resume" in sys.argv and log.is_file() else 0
with log.open("a") as file:
    for step in range(done, steps + 1):
        score = Random(f"{seed} {step}").randint(0, 80) / 80
        row = {"step": step, "val-core/math/acc/mean@4": score}
        print(json.dumps(row), file=file, flush=True)
