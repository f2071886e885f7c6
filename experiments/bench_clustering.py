"""Ways to cluster phrases, side by side: time, inertia, sizes, memory.

The phrases are the most frequent words and pairs of neighbouring words of captions. Each way runs in a process of its
own. Inertia is the sum of squared distances to the mean of the cluster; it is given relative to the first row.
"""

import json
import multiprocessing
import re
import resource
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from experiments.report import Report, parser
from pyterrier_grasp.concepts.mining.cluster import cluster
from pyterrier_grasp.concepts.mining.embed import embed, embedder

SIZE = 10


def main() -> None:
    """Run the benchmark."""
    arguments = parser(__doc__, "bench_clustering")
    arguments.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="embedder (%(default)s)")
    arguments.add_argument(
        "--captions",
        type=Path,
        nargs="+",
        required=True,
        help="Karpathy or COCO JSON, or text files of a caption a line",
    )
    arguments.add_argument("--phrases", type=int, default=100_000, help="how many to cluster (%(default)s)")
    arguments.add_argument("--sample", type=int, default=20_000, help="how many to compare all ways on (%(default)s)")
    arguments.add_argument("--threads", type=int, default=2, help="threads of each way (%(default)s)")
    args = arguments.parse_args()
    report = Report(args)

    texts = [text for path in args.captions for text in read_captions(path)]
    phrases = frequent_phrases(texts, args.phrases)
    report.step(f"embedding {len(phrases)} phrases of {len(texts)} captions")
    vectors = embed(phrases, embedder(args.model))
    sample = np.random.default_rng(args.seed).permutation(len(vectors))[: args.sample]
    files = {"all": report.out / "all.npy", "sample": report.out / "sample.npy"}
    np.save(files["all"], vectors)
    np.save(files["sample"], vectors[np.sort(sample)])

    for name, ways in (("sample", list(WAYS)), ("all", ["cluster()", "faiss, 15 iterations"])):
        rows = []
        for way in ways:
            if way.startswith("faiss") and not find_spec("faiss"):
                report.step(f"{name}: {way} is left out, since faiss-cpu is not installed")
                continue
            report.step(f"{name}: {way}")
            rows.append(alone(way, files[name], args.threads))
        table = pd.DataFrame(rows)
        table["inertia"] = (100 * (table["inertia"] / table["inertia"][0] - 1)).map("{:+.2f} %".format)
        print(table.to_string(index=False))
        report.add(name, table)

    report.step("the same clusters again, with one thread and with more")
    first, again, single = (labels("cluster()", files["sample"], n) for n in (args.threads, args.threads, 1))
    same = {"run again": bool((first == again).all()), "one thread": bool((first == single).all())}
    print(same)
    report.add("same", same)


def read_captions(path: Path) -> list[str]:
    """The captions of a file."""
    if path.suffix != ".json":
        return path.read_text(encoding="utf-8").splitlines()
    content = json.loads(path.read_text(encoding="utf-8"))
    if "annotations" in content:
        return [row["caption"] for row in content["annotations"]]
    return [sentence["raw"] for image in content["images"] for sentence in image["sentences"]]


def frequent_phrases(texts: list[str], n: int) -> list[str]:
    """The n most frequent words and pairs of neighbouring words."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower())
        counts.update(words)
        counts.update(f"{a} {b}" for a, b in zip(words, words[1:], strict=False))
    return [phrase for phrase, _ in counts.most_common(n)]


def _sklearn(name: str, **options: Any) -> Any:
    def run(vectors: np.ndarray, k: int) -> np.ndarray:
        import sklearn.cluster

        return getattr(sklearn.cluster, name)(k, n_init=1, random_state=0, **options).fit_predict(vectors)

    return run


def _faiss(iterations: int, spherical: bool = False) -> Any:
    def run(vectors: np.ndarray, k: int) -> np.ndarray:
        import faiss

        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}
        means = faiss.Kmeans(vectors.shape[1], k, niter=iterations, spherical=spherical, seed=1, **limits)
        means.train(vectors)
        return means.assign(vectors)[1]

    return run


WAYS: dict[str, Any] = {
    "sklearn KMeans": _sklearn("KMeans"),
    "sklearn MiniBatchKMeans": _sklearn("MiniBatchKMeans"),
    "sklearn MiniBatchKMeans, batches of 8192": _sklearn("MiniBatchKMeans", batch_size=8192),
    "sklearn BisectingKMeans": _sklearn("BisectingKMeans"),
    "faiss, 15 iterations": _faiss(15),
    "faiss, 25 iterations": _faiss(25),
    "faiss, 25 iterations, spherical": _faiss(25, spherical=True),
    "cluster(), any size": lambda vectors, k: cluster(vectors, size=SIZE, max_size=len(vectors)),
    "cluster()": lambda vectors, k: cluster(vectors, size=SIZE),
}


def labels(way: str, path: Path, threads: int) -> np.ndarray:
    """The clusters of the vectors of a file."""
    vectors = np.load(path)
    with threadpool_limits(threads):
        return WAYS[way](vectors, -(-len(vectors) // SIZE))


def alone(way: str, path: Path, threads: int) -> dict[str, Any]:
    """What a way of clustering takes and gives, measured in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (way, path, threads))


def measure(way: str, path: Path, threads: int) -> dict[str, Any]:
    """What a way of clustering takes and gives."""
    vectors = np.load(path)
    wall, cpu = time.perf_counter(), time.process_time()
    ids = labels(way, path, threads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    sizes = np.bincount(ids, minlength=-(-len(vectors) // SIZE))
    return {
        "way": way,
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "inertia": inertia(vectors, ids),
        "clusters": len(sizes),
        "empty": int((sizes == 0).sum()),
        "of_one": int((sizes == 1).sum()),
        "over_40": int((sizes > 40).sum()),
        "largest": int(sizes.max()),
        "peak_gib": round(memory / 2**30, 2),
    }


def inertia(vectors: np.ndarray, ids: np.ndarray) -> float:
    """Sum of squared distances to the means of the clusters."""
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
    sums = np.add.reduceat(vectors[order].astype(np.float64), starts)
    counts = np.diff(starts, append=len(ids))
    # sum |x - m|^2 = sum |x|^2 - sum n |m|^2
    return float((vectors.astype(np.float64) ** 2).sum() - ((sums**2).sum(1) / counts).sum())


if __name__ == "__main__":
    main()
