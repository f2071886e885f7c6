import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from experiments.bench_clustering import inertia
from pyterrier_grasp.concepts.mining.cluster import cluster, clusters


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def random(n, width=8, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(n, width)))


def topics(n_topics, each, noise=0.05, seed=0):
    """Vectors around far apart centres, shuffled; and the number of the centre of each."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(n_topics), each))
    return unit(random(n_topics, 32, seed)[truth] + noise * rng.normal(size=(len(truth), 32))), truth


def check(ids, n, max_size):
    assert ids.dtype == np.int64 and ids.shape == (n,)
    counts = np.bincount(ids)
    assert counts.min() >= 1 and counts.max() <= max_size
    assert list(dict.fromkeys(ids.tolist())) == list(range(len(counts)))  # numbered by their first vectors


def test_groups_that_are_far_apart_are_found():
    vectors, truth = topics(30, 10)
    ids = cluster(vectors)
    assert len(set(zip(ids.tolist(), truth.tolist(), strict=True))) == 30 == len(set(ids.tolist()))


def test_inertia_is_that_of_sklearn():
    vectors = topics(200, 10, noise=0.2)[0]
    ours = [inertia(vectors, cluster(vectors, max_size=len(vectors), seed=seed)) for seed in range(3)]
    theirs = [inertia(vectors, KMeans(200, n_init=1, random_state=seed).fit_predict(vectors)) for seed in range(3)]
    assert np.mean(ours) < 1.02 * np.mean(theirs)


def test_equal_seeds_give_equal_clusters():
    vectors = random(500)
    first = cluster(vectors, seed=3)
    np.testing.assert_array_equal(first, cluster(vectors.copy(), seed=3))
    assert (first != cluster(vectors, seed=4)).any()


@pytest.mark.parametrize("n", [0, 1, 2, 9, 10, 11, 40, 41])
def test_few_vectors(n):
    vectors = random(n) if n else np.zeros((0, 0), np.float32)
    ids = cluster(vectors)
    assert ids.shape == (n,) and ids.dtype == np.int64
    if n:
        check(ids, n, 40)
    if 0 < n <= 10:
        assert not ids.any()


def test_as_many_clusters_as_vectors():
    assert cluster(random(50), size=1).tolist() == list(range(50))


@pytest.mark.parametrize("n", [2, 40, 41, 1000])
def test_identical_vectors(n):
    ids = cluster(np.repeat(random(1), n, axis=0))
    check(ids, n, 40)
    assert len(set(ids.tolist())) <= max(1, n // 20)


def test_many_duplicates_among_others():
    vectors = np.concatenate([np.repeat(random(1, seed=1), 300, axis=0), random(100, seed=2)])
    check(cluster(vectors), 400, 40)


def test_a_large_cluster_is_halved_between_its_ends():
    angles = np.random.default_rng(0).permutation(np.linspace(0, 0.1, 64))  # one arc, and two places far from it
    arc = np.stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles], 1)
    ids = cluster(unit(np.concatenate([arc, *[[row] * 28 for row in np.eye(4)[2:]]])), size=40, max_size=40)
    assert sorted(np.bincount(ids)) == [28, 28, 32, 32]
    low, high = sorted((angles[ids[:64] == number] for number in set(ids[:64].tolist())), key=np.max)
    assert low.max() < high.min()


@settings(max_examples=60, deadline=None)
@given(
    codes=st.lists(st.integers(0, 40), min_size=1, max_size=120),
    size=st.integers(1, 12),
    more=st.integers(0, 12),
    seed=st.integers(0, 2**32),
)
def test_any_vectors_with_any_sizes(codes, size, more, seed):
    vectors = random(41, 4)[codes]
    ids = cluster(vectors, size=size, max_size=size + more, seed=seed)
    check(ids, len(codes), size + more)


def test_progress(capsys):
    cluster(random(50))
    assert not capsys.readouterr().err
    cluster(random(50), verbose=True)
    shown = capsys.readouterr().err
    assert "first centres" in shown and "k-means" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": 0}, "size must be an integer of at least 1, got 0"),
        ({"size": 2.5}, "size must be"),
        ({"size": True}, "size must be"),
        ({"size": 10, "max_size": 9}, "max_size must be an integer of at least 10, got 9"),
        ({"seed": -1}, "seed must be"),
        ({"seed": None}, "seed must be"),
    ],
)
def test_arguments_out_of_range(arguments, words):
    with pytest.raises(ValueError, match=words):
        cluster(random(20), **arguments)


@pytest.mark.parametrize("wrong", [2.0, 0.0, np.nan])
def test_vectors_must_be_normalised(wrong):
    vectors = random(5)
    vectors[3] *= wrong
    with pytest.raises(ValueError, match="vector number 3 has"):
        cluster(vectors)


def test_vectors_have_two_axes():
    with pytest.raises(ValueError, match=r"shape \[n, D\], got \(3,\)"):
        cluster(np.ones(3))


def test_clusters_keep_the_order_of_the_phrases():
    found = clusters(["dog", "street", "puppy", "road"], "entity", np.array([1, 0, 1, 0]))
    assert found == [("entity", ("street", "road")), ("entity", ("dog", "puppy"))]
    assert clusters([], "relation", np.zeros(0, np.int64)) == []


@pytest.mark.parametrize(
    ("kind", "ids", "words"),
    [
        ("thing", [0, 0], "kind must be one of"),
        ("entity", [0], "2 phrases, but the clusters of 1"),
        ("entity", [0, 2], "without a gap"),
        ("entity", [0, -1], "without a gap"),
    ],
)
def test_clusters_that_do_not_fit(kind, ids, words):
    with pytest.raises(ValueError, match=words):
        clusters(["dog", "cat"], kind, ids)
