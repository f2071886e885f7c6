"""Phrases with similar meanings, put together by K-means.

Lloyd's iterations from the centres of a greedy k-means++, which takes eight candidates for each centre. These eight are
worth 4 % of the inertia, and faiss does without them; drawing the centres in a hundred rounds of matrix products rather
than one by one makes them cheap. Measured with ``experiments/bench_clustering.py`` on words and pairs of words of COCO,
Flickr30k and Flickr8k captions, all-MiniLM-L6-v2, on 2 cores shared with other work (KMeans, which came first and met
most of it, took 37 s and 69 CPU seconds in a quieter run); inertia relative to scikit-learn's KMeans(n_init=1):

================================  =======  =====  =========  =======  =======  ======  =====
20,000 phrases, K = 2,000         seconds    CPU    inertia  largest  over 40  of one  empty
================================  =======  =====  =========  =======  =======  ======  =====
sklearn KMeans                        115    127          0       48       10      26      0
sklearn MiniBatchKMeans                29     35    +8.02 %      340       77     381      8
the same, batches of 8,192             78    114    +1.93 %      102       39     156      0
sklearn BisectingKMeans               2.7    4.6   +34.76 %       27        0      63      0
faiss Kmeans, 15 iterations           8.8     18    +5.21 %       50        8      58      0
faiss Kmeans, 25 iterations            15     22    +5.21 %       50        8      58      0
the same, spherical                    12     21    +5.11 %       51        7      56      0
here, clusters of any size            3.4    6.8    +0.22 %       65       12      22      0
here, clusters of at most 40          3.2    6.4    +0.07 %       40        0      22      0
================================  =======  =====  =========  =======  =======  ======  =====

100,000 phrases into 10,194 clusters took 67 s (120 CPU seconds) and 0.66 GiB in all, and 162 s on one busy core; faiss
with 15 iterations took 254 s (417). Equal input gave equal clusters in every run, with one thread and with two; another
linear algebra library may round otherwise, and then a few phrases may change sides.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from tqdm.auto import tqdm

from pyterrier_grasp.concepts.mining.refine import Cluster
from pyterrier_grasp.concepts.vocabulary import KINDS

_ROUNDS = 100  # in which the first centres are drawn
_TRIALS = 8  # candidates for each of them
_ITERATIONS = 25  # at most
_SETTLED = 1e-3  # share of vectors that may still move when the iterations end
_SAME = 1e-6  # squared distance of vectors that differ by rounding alone
_CELLS = 1 << 22  # scores computed at a time, 16 MiB


def cluster(
    vectors: np.ndarray, *, size: int = 10, max_size: int = 40, seed: int = 0, verbose: bool = False
) -> np.ndarray:
    """Cluster vectors into about n / ``size`` clusters, none of them larger than ``max_size``.

    K-means with K = ceil(n / size); a larger cluster is halved between its two ends until no part is too large. Equal
    input gives equal clusters on one machine.

    Args:
        vectors: float32 ``[n, D]``, each row of L2 norm 1, as :func:`~pyterrier_grasp.concepts.mining.embed.embed`
            returns them.
        size: Mean number of vectors of a cluster.
        max_size: Largest number of vectors of a cluster.
        seed: Seed of the first centres.
        verbose: Whether to show progress.

    Returns:
        int64 ``[n]``: the cluster of each vector. Clusters are numbered from 0 in the order of their first vectors.

    Raises:
        ValueError: If the vectors are not normalised, or ``size``, ``max_size`` or ``seed`` is out of range.
    """
    for name, value, least in (("size", size, 1), ("max_size", max_size, size), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    vectors = _checked(vectors)
    if not len(vectors):
        return np.zeros(0, np.int64)
    centres = _first_centres(vectors, -(-len(vectors) // size), np.random.default_rng(seed), verbose)
    ids = _lloyd(vectors, centres, verbose)
    order = np.argsort(ids, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
    parts = sorted((part for group in groups for part in _halves(vectors, group, max_size)), key=lambda part: part[0])
    for number, part in enumerate(parts):
        ids[part] = number
    return ids


def clusters(phrases: Sequence[str], kind: str, ids: np.ndarray) -> list[Cluster]:
    """Put the phrases of each cluster together.

    Args:
        phrases: Distinct phrases, the most frequent first.
        kind: ``"entity"`` or ``"relation"``.
        ids: The cluster of each phrase, as from :func:`cluster`.

    Returns:
        The clusters by number, each with its phrases in the order given.

    Raises:
        ValueError: If the kind is unknown, there are not as many ids as phrases, or they are not numbered from 0
            without a gap.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    if len(phrases) != len(ids):
        raise ValueError(f"there are {len(phrases)} phrases, but the clusters of {len(ids)}")
    members: dict[int, list[str]] = {}
    for phrase, number in zip(phrases, ids, strict=True):
        members.setdefault(int(number), []).append(phrase)
    numbers = sorted(members)
    if numbers != list(range(len(numbers))):
        raise ValueError(f"clusters must be numbered from 0 without a gap, got {numbers[:3]} to {numbers[-1]}")
    return [Cluster(kind, tuple(members[number])) for number in numbers]


def _checked(vectors: np.ndarray) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    if vectors.ndim != 2:
        raise ValueError(f"vectors must have the shape [n, D], got {vectors.shape}")
    norms = np.linalg.norm(vectors, axis=1)
    wrong = ~(np.abs(norms - 1) < 1e-3)  # NaN is wrong as well
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"each vector must have the L2 norm 1; vector number {first} has {norms[first]:g}")
    return vectors


def _products(vectors: np.ndarray, others: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield rows of ``vectors @ others.T`` block by block, in one buffer: fresh memory would double the time."""
    rows = max(1, _CELLS // len(others))
    buffer = np.empty((min(rows, len(vectors)), len(others)), np.float32)
    for start in range(0, len(vectors), rows):
        block = slice(start, min(start + rows, len(vectors)))
        yield block, np.matmul(vectors[block], others.T, out=buffer[: block.stop - start])


def _first_centres(vectors: np.ndarray, k: int, rng: np.random.Generator, verbose: bool) -> np.ndarray:
    """Greedy k-means++ (Arthur and Vassilvitskii 2007), many centres at a time.

    A candidate is drawn with a probability proportional to its squared distance to the closest centre. Of eight
    candidates that one becomes a centre which lowers the sum of these distances most.

    Returns:
        float32 ``[K, D]``, where K is ``k`` or the number of distinct vectors, whichever is less.
    """
    n = len(vectors)
    chosen = np.zeros(0, np.int64)
    closest = np.full(n, 2, np.float32)  # squared distance to the closest centre: 2 - 2 cos
    with tqdm(total=k, desc="first centres", disable=not verbose) as bar:
        while len(chosen) < k and closest.any():
            share = closest.astype(np.float64)
            wanted = min(-(-k // _ROUNDS), k - len(chosen))
            drawn = rng.choice(n, (wanted, _TRIALS), p=share / share.sum())
            gain = np.zeros(drawn.size)
            for block, saved in _products(vectors, 2 * vectors[drawn.ravel()]):
                saved += closest[block, None] - 2
                gain += np.maximum(saved, 0, out=saved).sum(0)
            best = gain.reshape(drawn.shape).argmax(1)
            new = np.unique(drawn[np.arange(wanted), best])
            for block, cosine in _products(vectors, vectors[new]):
                distance = 2 - 2 * cosine.max(1)
                closest[block] = np.minimum(closest[block], np.where(distance < _SAME, 0, distance))
            closest[new] = 0
            chosen = np.concatenate([chosen, new])
            bar.update(len(new))
    return vectors[chosen]


def _lloyd(vectors: np.ndarray, centres: np.ndarray, verbose: bool) -> np.ndarray:
    """Lloyd's iterations: each vector to the closest centre, each centre to the mean of its vectors."""
    ids = np.full(len(vectors), -1, np.int64)
    for _ in tqdm(range(_ITERATIONS), desc="k-means", disable=not verbose):
        before, ids = ids, np.empty_like(ids)
        half = (centres**2).sum(1) / 2
        for block, scores in _products(vectors, centres):
            scores -= half
            ids[block] = scores.argmax(1)
        if (ids != before).mean() < _SETTLED:
            break
        counts = np.bincount(ids, minlength=len(centres))
        filled = counts > 0
        starts = (np.cumsum(counts) - counts)[filled]
        centres[filled] = np.add.reduceat(vectors[np.argsort(ids, kind="stable")], starts) / counts[filled, None]
    return ids


def _halves(vectors: np.ndarray, members: np.ndarray, max_size: int) -> list[np.ndarray]:
    """Halve a cluster until no part is too large. K-means would split off single vectors instead.

    The order for it is along the line from the vector farthest from the mean to the one farthest from that.
    """
    if len(members) <= max_size:
        return [members]
    own = vectors[members]
    one = own[(own @ own.mean(0)).argmin()]
    other = own[(own @ one).argmin()]
    order = members[np.argsort(own @ (one - other), kind="stable")]
    middle = len(order) // 2
    return [part for half in (order[:middle], order[middle:]) for part in _halves(vectors, np.sort(half), max_size)]
