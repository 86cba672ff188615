"""How often ``dmlkit diagnose`` calls a healthy Run ill: ``python -m benchmarks.diagnosis``.

It diagnoses every Run in the store (``$DMLKIT_CACHE``), counts what it finds by loss, and names
the healthy ones, of a Recall@1 above 60 %, that it calls ill. ``--every N`` takes each N-th Run.
"""

import sys
from collections import Counter
from pathlib import Path

from dmlkit import cache_folder, training
from dmlkit.diagnosis import diagnose

HEALTHY = 0.6  # Recall@1


def main(store: Path, every: int) -> None:
    """Print the counts, and the findings in Runs that are well."""
    runs: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    alarms = healthy = 0
    # A folder with a point in its name is one that a training is writing now.
    folders = [
        path.parent for path in sorted(store.glob("*/run.json")) if "." not in path.parent.name
    ]
    for folder in folders[::every]:
        run = training.load_run(folder)
        loss, recall = run.experiment.loss, run.scores["recall_at_1"]
        findings = diagnose(run, "cpu")
        runs[loss] += 1
        found.update((loss, finding.name) for finding in findings)
        well = recall > HEALTHY
        healthy += well
        alarms += well and bool(findings)
        for finding in findings if well else ():
            print(f"{folder.name}, {loss}, R@1 {recall:.1%}: {finding.name}: {finding.seen}")
    for loss, count in sorted(runs.items()):
        kinds = [f"{name} {n}" for (of, name), n in found.most_common() if of == loss]
        print(f"{loss}, {count} Runs: {', '.join(kinds) or 'nothing'}")
    print(f"{alarms} of {healthy} Runs with a Recall@1 above {HEALTHY:.0%} are called ill")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(cache_folder() / "runs", int(arguments[1]) if arguments[:1] == ["--every"] else 1)
