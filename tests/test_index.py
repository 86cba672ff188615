"""The index of dmlkit.retrieval: against exact search, on disk and back, and what it refuses."""

import json

import faiss
import faiss.contrib.torch_utils  # replaces Index.search, wherever a library imports it
import numpy as np
import pytest
import torch

from dmlkit.index import Index
from dmlkit.retrieval import nearest_neighbors

KINDS = ("flat", "ivfpq", "hnsw")
SMALL = {"flat": {}, "ivfpq": {"nbits": 5, "nlist": 12}, "hnsw": {"M": 12}}


def clusters(count=1200, d=16, classes=40, seed=0):
    """Classes well apart, as a trained network makes them: float32 (N, d), (N,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    x = 3 * rng.normal(size=(classes, d))[labels] + rng.normal(size=(count, d))
    return x.astype(np.float32), labels


X, LABELS = clusters()
QUERIES, GALLERY = X[:100], X[100:]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 7, len(GALLERY)])
def test_flat_is_exact_search_bit_for_bit(metric, k):
    found = Index.build(GALLERY, "flat", metric).search(QUERIES, k)
    exact = nearest_neighbors(QUERIES, k, GALLERY, metric)
    np.testing.assert_array_equal(found[0], exact[0])
    np.testing.assert_array_equal(found[1], exact[1])


def test_flat_keeps_the_order_of_ties():
    copies = np.repeat(GALLERY[:5], 40, axis=0)[::-1].copy()
    found = Index.build(copies, metric="euclidean").search(GALLERY[:5], 60)
    exact = nearest_neighbors(GALLERY[:5], 60, copies)
    np.testing.assert_array_equal(found[0], exact[0])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_ivfpq_with_every_cell_and_nothing_rounded_off_is_exact(metric):
    """64 points, 64 centroids for each part: every embedding is its own centroid."""
    x = GALLERY[:64]
    index = Index.build(x, "ivfpq", metric, nlist=1, nbits=6, m=2, nprobe=1)
    indices, found = index.search(QUERIES, 64)
    exact, values = nearest_neighbors(QUERIES, 64, x, metric)
    np.testing.assert_array_equal(indices[:, :10], exact[:, :10])
    np.testing.assert_allclose(found, values, rtol=1e-3, atol=1e-4)


def test_hnsw_that_keeps_everything_in_view_is_exact():
    index = Index.build(GALLERY, "hnsw", ef_search=len(GALLERY))
    assert index.recall(QUERIES, GALLERY, k=10) == 1.0


def test_ivfpq_finds_the_class_and_most_of_the_neighbors_when_codes_are_long():
    """Classes are 3·√(2·16) = 17 apart and √16 = 4 wide: far beyond the error of a 16 × 5-bit code,
    so the nearest item has the query's class; which item of it is the nearest is another matter."""
    index = Index.build(GALLERY, "ivfpq", "euclidean", m=16, nbits=5, nlist=12, nprobe=12)
    places, _ = index.search(QUERIES, 1)
    assert (LABELS[100:][places[:, 0]] == LABELS[:100]).mean() > 0.95
    fine = index.recall(QUERIES, GALLERY)
    coarse = Index.build(GALLERY, "ivfpq", "euclidean", m=1, nbits=5, nlist=12, nprobe=12)
    assert fine > coarse.recall(QUERIES, GALLERY)
    assert fine > 0.5  # ten by lot out of a class of 30, itself told apart, would give a third


@pytest.mark.parametrize(
    "kind, args, breadth",
    [
        ("ivfpq", {"m": 16, "nbits": 8, "nlist": 20}, "nprobe"),
        ("hnsw", {"M": 4, "ef_construction": 8}, "ef_search"),
    ],
)
def test_a_broader_search_never_finds_less(kind, args, breadth):
    x = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)  # no classes: harder
    index = Index.build(x, kind, "euclidean", **args)
    little, more, much = (index.recall(x[::10], x, 10, **{breadth: n}) for n in (1, 5, 20))
    assert little < more <= much + 0.02


def test_recall_counts_the_exact_neighbors_that_were_found():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    index = Index.build(np.array([[0.0], [1.0], [10.0], [2.0]]), metric="euclidean")
    # Of 0.1: exact 0, 1, 2; but in the index the item 3 is where 2 should be, and the other way.
    assert index.recall(np.array([[0.1]]), x, k=3) == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_index_whatever_the_threads(kind):
    contents = []
    before = faiss.omp_get_max_threads()
    try:
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            index = Index.build(GALLERY, kind, seed=3, **SMALL[kind])
            assert faiss.omp_get_max_threads() == threads
            contents.append(faiss.serialize_index(index.faiss))
    finally:
        faiss.omp_set_num_threads(before)
    np.testing.assert_array_equal(*contents)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_answers_the_same(kind, tmp_path):
    index = Index.build(GALLERY, kind, facts={"run": "a", "names": ["é", "b"]}, **SMALL[kind])
    path = tmp_path / "deep" / "my.index"
    index.save(path)
    index.save(path)  # over an old one
    loaded = Index.load(path)
    assert (loaded.kind, loaded.metric, loaded.searching) == (kind, "cosine", index.searching)
    assert loaded.facts == {"run": "a", "names": ["é", "b"]}
    assert len(loaded) == len(index) == len(GALLERY)
    for mine, theirs in zip(index.search(QUERIES, 5), loaded.search(QUERIES, 5), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [file.name for file in path.parent.iterdir()] == ["my.index"]


def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "my.index"

    def broken(file, **arrays):
        file.write(b"half of it")
        raise KeyboardInterrupt

    index = Index.build(GALLERY)
    for before in ([], ["my.index"]):
        with monkeypatch.context() as patch:
            patch.setattr(np, "savez", broken)
            with pytest.raises(KeyboardInterrupt):
                index.save(path)
        assert [file.name for file in tmp_path.iterdir()] == before
        Index.build(GALLERY[:50]).save(path)
    assert len(Index.load(path)) == 50


@pytest.mark.parametrize("damage", [b"", b"no index", None])
def test_a_file_that_is_no_index_is_named(tmp_path, damage):
    path = tmp_path / "my.index"
    with pytest.raises(FileNotFoundError, match="there is no index"):
        Index.load(path)
    Index.build(GALLERY).save(path)
    path.write_bytes(path.read_bytes()[:-2000] if damage is None else damage)
    with pytest.raises(
        ValueError, match=r"my\.index is no index that can be read .* build it anew"
    ):
        Index.load(path)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kind": "hnsw"}, "kind 'hnsw' does not fit IndexFlat"),
        ({"kind": "other"}, "kind 'other' does not fit"),
        ({"metric": "hamming"}, "metric 'hamming'"),
        ({"searching": {"nprobe": 3}}, "a search of flat has no argument nprobe; it has: none"),
        ({"searching": 3}, "has no attribute 'keys'"),
        ({"facts": 3}, "facts are 3"),
        ({"unit": 0.0}, "unit must be above 0"),
        ({"unit": None}, "unit must be a number"),
        ({"color": 1}, "unexpected keyword argument 'color'"),
    ],
)
def test_a_file_that_says_other_than_save_writes_is_named(tmp_path, change, message):
    path = tmp_path / "my.index"
    Index.build(GALLERY).save(path)
    with np.load(path) as kept:
        about, content = json.loads(str(kept["about"])), kept["index"]
    with path.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about | change)), index=content)
    with pytest.raises(ValueError, match=rf"my\.index is no index that can be read \(.*{message}"):
        Index.load(path)


def with_a_long_list(index):
    """A length in it is 2**32 more than there are items."""
    content = faiss.serialize_index(index).copy()
    levels = content.tobytes().index(len(GALLERY).to_bytes(8, "little"), 100)
    content[levels + 4] = 1
    return content


@pytest.mark.parametrize(
    "kind, spoil, message",
    [
        ("flat", lambda index: index.add(GALLERY[:1] * np.nan), "not finite"),
        ("ivfpq", lambda index: setattr(index, "is_trained", False), "not trained"),
        ("hnsw", with_a_long_list, "limit"),
    ],
)
def test_what_checksums_do_not_show_is_found_as_it_is_read(
    tmp_path, monkeypatch, kind, spoil, message
):
    path = tmp_path / "my.index"
    index = Index.build(GALLERY, kind, "euclidean", **SMALL[kind])
    content = spoil(index.faiss)
    if content is not None:
        monkeypatch.setattr(faiss, "serialize_index", lambda _: content)
    index.save(path)
    with pytest.raises(ValueError, match=rf"my\.index is no index .*{message}"):
        Index.load(path)


def test_an_index_that_would_be_unpickled_is_refused(tmp_path):
    path = tmp_path / "my.index"
    with path.open("wb") as file:
        np.savez(file, about=np.array([{"kind": "flat"}], dtype=object), index=np.zeros(3))
    with pytest.raises(ValueError, match=r"no index that can be read .*allow_pickle"):
        Index.load(path)


def test_tensors_in_tensors_out():
    index = Index.build(torch.from_numpy(GALLERY))
    indices, cosines = index.search(torch.from_numpy(QUERIES), 3)
    assert isinstance(indices, torch.Tensor)
    assert isinstance(cosines, torch.Tensor)
    np.testing.assert_array_equal(indices, index.search(QUERIES, 3)[0])


def test_what_was_not_come_upon_is_minus_one_and_infinitely_far():
    index = Index.build(GALLERY, "ivfpq", "euclidean", nbits=5, nlist=40, nprobe=1)
    indices, distances = index.search(QUERIES[:5], 500)
    assert (indices[:, -1] == -1).all()
    assert np.isinf(distances[indices < 0]).all()
    assert np.isfinite(distances[indices >= 0]).all()


@pytest.mark.parametrize(
    "args, error, message",
    [
        ({"kind": "annoy"}, ValueError, "kind must be one of flat, ivfpq, hnsw, but is 'annoy'"),
        ({"metric": "hamming"}, ValueError, "one of euclidean, cosine, but is 'hamming'"),
        ({"kind": "hnsw", "nlist": 3}, TypeError, "hnsw has no argument nlist; it has: M, ef_con"),
        ({"kind": "flat", "M": 3}, TypeError, "flat has no argument M; it has: none"),
        ({"kind": "ivfpq", "m": 5}, ValueError, "5 parts of equal size cannot make 16 dimensions"),
        ({"kind": "ivfpq", "nbits": 11}, ValueError, "2048 centroids .* learned from 1100 embed"),
        ({"kind": "ivfpq", "nlist": 1101}, ValueError, "1101 centroids .* learned from 1100 embed"),
        ({"kind": "ivfpq", "nlist": 0}, ValueError, "expected integers from 1, got nlist=0"),
        ({"kind": "hnsw", "M": 1.5}, ValueError, "M: expected an integer"),
        ({"kind": "flat", "nprobe": 3}, TypeError, "flat has no argument nprobe"),
        ({"kind": "hnsw", "nprobe": 3}, TypeError, "hnsw has no argument nprobe"),
        ({"kind": "hnsw", "ef_search": 0}, ValueError, "integers from 1, got ef_search=0"),
    ],
)
def test_what_cannot_be_built_is_said(args, error, message):
    with pytest.raises(error, match=message):
        Index.build(GALLERY, **args)


def test_bad_embeddings_and_queries_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        Index.build(np.full((3, 2), np.nan))
    index = Index.build(GALLERY, "hnsw")
    with pytest.raises(ValueError, match="holds embeddings of 16 dimensions, but these have 8"):
        index.search(QUERIES[:, :8], 1)
    for k in (0, len(GALLERY) + 1):
        with pytest.raises(ValueError, match=f"k: expected 1 to {len(GALLERY)}"):
            index.search(QUERIES, k)
    with pytest.raises(
        ValueError, match="a search of hnsw: expected integers from 1, got ef_search=0"
    ):
        index.search(QUERIES, 1, ef_search=0)
    with pytest.raises(
        TypeError, match="a search of hnsw has no argument nprobe; it has: ef_search"
    ):
        index.search(QUERIES, 1, nprobe=3)
    with pytest.raises(ValueError, match="the index has 1100 items, but this 7"):
        index.recall(QUERIES, GALLERY[:7])


@pytest.mark.parametrize("kind", ["flat", "ivfpq", "hnsw"])
@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e19, 1e200])
def test_the_unit_of_the_embeddings_does_not_count(tmp_path, kind, scale):
    x = np.random.default_rng(0).normal(size=(400, 8))
    args = {"nbits": 4} if kind == "ivfpq" else {}
    ours = Index.build(x, kind, "euclidean", **args).search(x[:20], 5)[0]
    Index.build(scale * x, kind, "euclidean", **args).save(tmp_path / "my.index")
    scaled = Index.load(tmp_path / "my.index").search(scale * x[:20], 5)[0]
    assert (ours == scaled).mean() > 0.9  # a scale that is no power of two moves last bits


@pytest.mark.parametrize("kind", KINDS)
def test_queries_out_of_all_proportion_are_refused(kind):
    index = Index.build(1e-25 * GALLERY, kind, "euclidean", **SMALL[kind])
    with pytest.raises(ValueError, match=r"queries: .* times as large as what this index holds"):
        index.search(QUERIES, 1)


def test_hnsw_with_one_link_is_refused_as_faiss_would_end_the_process():
    with pytest.raises(ValueError, match="M from 2"):
        Index.build(np.random.default_rng(0).normal(size=(50, 4)), "hnsw", M=1)
