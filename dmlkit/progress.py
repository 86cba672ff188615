"""How far the trainings of a sweep are, as a bar."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tqdm.auto import tqdm

import dmlkit
from dmlkit.training import Experiment
from dmlkit.training.trainer import read_checkpoint


class Steps:
    """A bar of the steps of all Runs, which their processes write into checkpoints."""

    PAUSE_SECONDS = 2.0  # between looks at the checkpoints

    def __init__(
        self, experiments: Sequence[Experiment], ended: Iterable[int], *, shown: bool
    ) -> None:
        self.experiments, self.ended, self.shown = experiments, set(ended), shown
        self.hashes = {each.hash(): i for i, each in enumerate(experiments)}
        self.read: dict[Path, tuple[int, int]] = {}  # when a checkpoint was written, its step
        self.bar = tqdm(
            total=sum(each.steps for each in experiments), initial=self._of_ended(), unit="step",
            desc=self._title(), disable=not shown, leave=False,
        )  # fmt: skip

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def end(self, i: int) -> None:
        """A Run is there, or failed."""
        self.ended.add(i)
        self.bar.set_description(self._title(), refresh=False)

    def look(self) -> None:
        """What is done by now; never less than at the last look."""
        if self.shown:
            steps = self._of_ended() + sum(self._of_checkpoints().values())
            self.bar.update(max(steps - self.bar.n, 0))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look from time to time while this process trains itself."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(self.PAUSE_SECONDS):
                self.look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _title(self) -> str:
        return f"runs {len(self.ended)}/{len(self.experiments)}"

    def _of_ended(self) -> int:
        return sum(self.experiments[i].steps for i in tuple(self.ended))

    def _of_checkpoints(self) -> dict[int, int]:
        """Of the Runs that are being trained, by their number."""
        found = {}
        for path in (dmlkit.cache_folder() / "runs").glob("*.checkpoint"):
            i = self.hashes.get(path.name.split("-")[0])
            if i is None or i in self.ended:
                continue
            with suppress(OSError, ValueError):  # it has just been removed, or is damaged
                written = path.stat().st_mtime_ns
                if self.read.get(path, (0, 0))[0] != written:
                    self.read[path] = written, read_checkpoint(path)["step"]
                found[i] = self.read[path][1]
        return found
