"""A search index in a file: exact, or approximate where a gallery is large."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmlkit.checks import as_integer, check_choice, check_count, check_positive, check_range
from dmlkit.files import write_whole
from dmlkit.neighbors import Array, Metric, Sets, as_matrix, by_faiss, in_own_unit
from dmlkit.retrieval import nearest_neighbors
from dmlkit.training import repeatable_numerics

# "np": codes as they come; faiss would spend most of its time on an order that we never use.
_FACTORY = {"flat": "Flat", "ivfpq": "IVF{nlist},PQ{m}x{nbits}np", "hnsw": "HNSW{M},Flat"}
# What a search may be told, with its default.
_SEARCH: dict[str, dict[str, int]] = {"flat": {}, "ivfpq": {"nprobe": 8}, "hnsw": {"ef_search": 64}}
_LARGEST = 1e15  # of a query, in the index's unit: float32 still holds its squared distances
# As faiss reads them: it builds a flat index as an IndexFlat.
_TYPES = {"flat": "IndexFlatL2", "ivfpq": "IndexIVFPQ", "hnsw": "IndexHNSWFlat"}


@dataclass(frozen=True, eq=False)
class Index:
    """An embedded set, ready to be searched: every item, or only those that look promising.

    - ``"flat"`` compares a query with all N embeddings: the neighbors of ``nearest_neighbors``.
    - ``"ivfpq"`` keeps m · nbits bits of an embedding instead of 32 d. k-means makes ``nlist``
      cells; in each, what is left of an embedding is cut in ``m`` parts, each replaced by the
      nearest of 2^nbits centroids. A query looks into its ``nprobe`` (8) nearest cells. Distances
      are those to the replaced embeddings.
    - ``"hnsw"`` keeps the embeddings and links each with about ``M`` near ones. A query walks along
      the links, and keeps the ``ef_search`` (64) best items seen so far.

    ``facts``, JSON literals, say what the items are, and are kept with them.

    Sources: Jégou, Douze and Schmid, Product Quantization for Nearest Neighbor Search (2011);
    Malkov and Yashunin, Efficient and Robust Approximate Nearest Neighbor Search Using Hierarchical
    Navigable Small World Graphs (2020).

    >>> index = Index.build(np.array([[0.0], [1.0], [3.0]]), metric="euclidean")
    >>> index.search(np.array([[2.5]]), k=2)
    (array([[2, 1]]), array([[0.5, 1.5]], dtype=float32))
    """

    kind: str
    metric: Metric
    searching: Mapping[str, int]  # nprobe or ef_search, unless a search says otherwise
    faiss: Any  # its typing stubs know no index's own attributes
    facts: Mapping[str, Any] = field(default_factory=dict)
    unit: float = 1.0  # of what is kept, a power of two: nothing over- or underflows

    @classmethod
    def build(
        cls,
        embeddings: Array,
        kind: str = "flat",
        metric: Metric = "cosine",
        *,
        seed: int = 0,
        facts: Mapping[str, Any] | None = None,
        **args: int,
    ) -> "Index":
        """Index embeddings (N, d), as float32; the same for the same seed, so on one thread.

        ``args`` of ivfpq: ``nlist`` (default 4√N, but at most N/39, so that a cell's centroid has
        39 embeddings to learn from), ``m`` (default about d/4; must divide d), ``nbits`` (8),
        ``nprobe``. Of hnsw: ``M`` (32), ``ef_construction`` (40, the best items seen that each
        insertion keeps), ``ef_search``.

        Raises ValueError for what the module refuses, another metric than euclidean and cosine, an
        unknown kind, fewer embeddings than centroids, an ``m`` that does not divide d; TypeError
        for an argument that the kind does not have.
        """
        check_choice(tuple(_FACTORY), kind=kind)
        check_choice(("euclidean", "cosine"), metric=metric)
        check_count(0, seed=seed)
        check_range(0, 2**31 - 1, seed=seed)  # faiss takes no larger one
        if not isinstance(facts or {}, Mapping):
            raise TypeError(f"facts must be names with JSON literals, but are {facts!r}")
        given = as_matrix(embeddings, "embeddings", metric).cpu()
        unit = math.ldexp(1.0, math.frexp(given.abs().max().item())[1])
        x = (given / unit).float().numpy()
        N, d = x.shape
        mine = {name: args.pop(name) for name in _SEARCH[kind] if name in args}
        settings = _settings(kind, N, d, args)
        index: Any = faiss.index_factory(d, _FACTORY[kind].format(**settings))
        if kind == "ivfpq":
            for clustering in (index.cp, index.pq.cp):
                clustering.seed = seed
                clustering.min_points_per_centroid = 1  # else faiss complains on stderr
            # faiss's 25 rounds on 256 points a centroid take ten times as long, and find no more.
            index.pq.cp.niter, index.pq.cp.max_points_per_centroid = 10, 64
        if kind == "hnsw":
            index.hnsw.efConstruction = settings["ef_construction"]
            index.hnsw.rng = faiss.RandomGenerator(seed)  # type: ignore[attr-defined]
        # Several threads would link a graph in the order in which they happen to come.
        with repeatable_numerics(threads=1):
            index.train(x)
            index.add(x)
        return cls(kind, metric, _searching(kind, mine), index, dict(facts or {}), unit)

    def __len__(self) -> int:
        return self.faiss.ntotal

    def search(self, queries: Array, k: int, **args: int) -> tuple[Array, Array]:
        """The k nearest items of every query: (Q, d) -> (Q, k), (Q, k), as ``nearest_neighbors``.

        Where an approximate search comes upon fewer than k items, the rest have the index −1 and
        are infinitely far away. ``args``: ``nprobe`` of ivfpq, ``ef_search`` of hnsw.

        Raises ValueError for what the module refuses, another d than the index has, queries that
        are out of all proportion to it, a k beyond it, an argument below 1;
        TypeError for one that the kind does not have.
        """
        x = (as_matrix(queries, "queries", self.metric).cpu() / self.unit).float()
        if x.shape[1] != self.faiss.d:
            raise ValueError(
                f"queries: this index holds embeddings of {self.faiss.d} dimensions, but these "
                f"have {x.shape[1]}; are they another model's?"
            )
        if x.abs().max() > _LARGEST:
            raise ValueError(
                f"queries: they are more than {_LARGEST:.0e} times as large as what this index "
                f"holds, whose unit is {self.unit:.0e}; are they another model's?"
            )
        if not 1 <= as_integer(k, "k") <= len(self):
            raise ValueError(f"k: expected 1 to {len(self)}, the items of the index, got {k}")
        chosen = _searching(self.kind, {**self.searching, **args})
        if self.kind == "flat":
            y = torch.from_numpy(self.stored())
            indices, squared = by_faiss(x, torch.full((len(x),), -1), y, self.faiss, k)
        else:
            # Set on the index: where a library has imported faiss.contrib.torch_utils (as
            # pytorch-metric-learning does), search no longer takes params.
            if self.kind == "ivfpq":
                self.faiss.nprobe = chosen["nprobe"]
            else:
                self.faiss.hnsw.efSearch = chosen["ef_search"]
            squared, indices = map(torch.from_numpy, self.faiss.search(x.numpy(), k))
            if squared.isnan().any():
                raise ValueError("the index holds numbers that are not finite: build it anew")
            squared = squared.clamp_min(0).masked_fill(indices < 0, math.inf)
        found = in_own_unit(squared.double(), Sets(x, x, self.unit, str(self.metric), 1.0)).float()
        if isinstance(queries, Tensor):
            return indices.to(queries.device), found.to(queries.device)
        return indices.numpy(), found.numpy()

    def stored(self) -> NDArray[np.float32]:
        """The embeddings (N, d) that a flat index keeps, in its unit; not copied."""
        flat = faiss.rev_swig_ptr(self.faiss.get_xb(), self.faiss.d * len(self))
        return flat.reshape(len(self), -1)

    def recall(self, queries: Array, gallery: Array, k: int = 10, **args: int) -> float:
        """Of the k exact neighbors of every query, the share that the index finds, in 0..1.

        ``gallery`` (N, d) are the embeddings that the index was built of; ``args`` as ``search``.

        >>> x = np.random.default_rng(0).normal(size=(500, 8))
        >>> Index.build(x, "hnsw").recall(x, x, k=1)
        1.0
        """
        if len(gallery) != len(self):
            raise ValueError(f"gallery: the index has {len(self)} items, but this {len(gallery)}")
        exact, _ = nearest_neighbors(queries, k, gallery, self.metric)
        found, _ = self.search(queries, k, **args)
        hits = torch.as_tensor(found)[:, :, None] == torch.as_tensor(exact)[:, None, :]  # (Q, k, k)
        return hits.any(dim=2).double().mean().item()

    def save(self, path: Path) -> None:
        """Write one file, all of it or nothing: beside, then renamed."""
        names = ("kind", "metric", "searching", "facts", "unit")
        about = {name: getattr(self, name) for name in names}
        path.parent.mkdir(parents=True, exist_ok=True)

        def write(beside: Path) -> None:
            with beside.open("wb") as file:
                content = faiss.serialize_index(self.faiss)
                np.savez(file, about=np.array(json.dumps(about)), index=content)

        write_whole({path: write})

    @classmethod
    def load(cls, path: Path) -> "Index":
        """Read what ``save`` wrote. Raises FileNotFoundError; ValueError for any other file.

        The file is data: zip's checksums find damage, and faiss checks what it is given. It does so
        well only in its newer releases, so do not load the index of a stranger with an old one.
        """
        if not path.is_file():
            raise FileNotFoundError(f"there is no index {path}: build one, and save it there")
        try:
            with path.open("rb") as file, np.load(file) as kept:
                about = json.loads(str(kept["about"]))
                index = cls(faiss=_deserialized(kept["index"]), **about)
            _check_read(index)
            return index
        except Exception as error:  # a dozen kinds
            raise ValueError(
                f"{path} is no index that can be read ({str(error) or type(error).__name__}): "
                "delete it, and build it anew"
            ) from error


def _deserialized(content: NDArray[np.uint8]) -> Any:
    """A faiss index, none of whose arrays is larger than all of its bytes.

    Else a damaged length would take all memory. Older releases of faiss have no such limit.
    """
    limit = getattr(faiss, "set_deserialization_vector_byte_limit", lambda _: None)
    before = getattr(faiss, "get_deserialization_vector_byte_limit", int)()
    limit(content.nbytes)
    try:
        return faiss.deserialize_index(content)
    finally:
        limit(before)


def _check_read(index: Index) -> None:
    """Refuse what ``save`` does not write."""
    if index.kind not in _TYPES or type(index.faiss).__name__ != _TYPES[index.kind]:
        raise ValueError(f"kind {index.kind!r} does not fit {type(index.faiss).__name__}")
    if index.metric not in ("euclidean", "cosine"):
        raise ValueError(f"metric {index.metric!r}")
    _searching(index.kind, index.searching)
    if index.kind == "flat" and not np.isfinite(index.stored()).all():
        raise ValueError("it holds numbers that are not finite")
    if not isinstance(index.facts, dict):
        raise ValueError(f"facts are {index.facts!r}")
    check_positive(unit=index.unit)
    index.search(np.full((1, index.faiss.d), index.unit), 1)  # what faiss finds only then


def _settings(kind: str, N: int, d: int, args: Mapping[str, int]) -> dict[str, int]:
    """Arguments of an index of N embeddings in d dimensions, defaults included."""
    known = {
        "flat": {},
        "ivfpq": {
            "nlist": max(1, min(round(4 * N**0.5), N // 39)),
            "m": max(m for m in range(1, max(1, d // 4) + 1) if d % m == 0),
            "nbits": 8,
        },
        "hnsw": {"M": 32, "ef_construction": 40},
    }[kind]
    if unknown := sorted(args.keys() - known.keys()):
        there = ", ".join(known) or "none"
        raise TypeError(f"{kind} has no argument {', '.join(unknown)}; it has: {there}")
    settings = known | {name: as_integer(value, name) for name, value in args.items()}
    if wrong := [f"{name}={value}" for name, value in settings.items() if value < 1]:
        raise ValueError(f"{kind}: expected integers from 1, got {', '.join(wrong)}")
    if settings.get("M") == 1:  # faiss divides by log M, and ends the process
        raise ValueError("hnsw: expected M from 2, links of each item, got M=1")
    if kind == "ivfpq":
        if d % settings["m"]:
            raise ValueError(f"m: {settings['m']} parts of equal size cannot make {d} dimensions")
        centroids = max(settings["nlist"], 2 ** settings["nbits"])
        if centroids > N:
            raise ValueError(
                f"ivfpq: {centroids} centroids (nlist={settings['nlist']}, 2^nbits="
                f"{2 ** settings['nbits']}) cannot be learned from {N} embeddings; give more of "
                "these, lower nlist or nbits, or take kind='flat', which is quick at this size"
            )
    return settings


def _searching(kind: str, given: Mapping[str, int]) -> dict[str, int]:
    """What a search of this kind is told, defaults included."""
    if unknown := sorted(given.keys() - _SEARCH[kind].keys()):
        there = ", ".join(_SEARCH[kind]) or "none"
        raise TypeError(f"a search of {kind} has no argument {', '.join(unknown)}; it has: {there}")
    settings = _SEARCH[kind] | {name: as_integer(value, name) for name, value in given.items()}
    if wrong := [f"{name}={value}" for name, value in settings.items() if value < 1]:
        raise ValueError(f"a search of {kind}: expected integers from 1, got {', '.join(wrong)}")
    return settings
