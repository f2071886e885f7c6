"""What the steps of a build leave for each other: phrases, their vectors, clusters, refined clusters.

``phrases.jsonl``
    The phrases of the training captions, ``{"phrase", "kind", "df", "text_df"}``; ``phrases.npy`` has their vectors.
``clusters.jsonl``
    The clusters as they came from K-means, ``{"kind", "phrases"}``.
``refined.jsonl``
    The same clusters refined, ``{"kind", "groups": [{"canonical", "members"}], "dropped", "problem"}``.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyterrier_grasp.concepts import storage
from pyterrier_grasp.concepts.mining.phrases import Phrase
from pyterrier_grasp.concepts.mining.refine import Cluster, Group, Refinement


def write_phrases(folder: Path, phrases: Iterable[Phrase]) -> None:
    """Write ``phrases.jsonl``."""
    storage.write_lines(folder / storage.PHRASES, (phrase._asdict() for phrase in phrases))


def write_clusters(folder: Path, clusters: Iterable[Cluster]) -> None:
    """Write ``clusters.jsonl``."""
    storage.write_lines(folder / storage.CLUSTERS, (cluster._asdict() for cluster in clusters))


def read_phrases(folder: Path) -> list[Phrase]:
    """Read ``phrases.jsonl``."""
    return [
        Phrase(**line) for line in storage.read_lines(folder / storage.PHRASES, {"phrase": str, "kind": str, "df": int})
    ]


def write_vectors(folder: Path, vectors: np.ndarray) -> None:
    """Write ``phrases.npy``: the vectors of the phrases, float16 ``[n, D]``."""
    with storage.aside(folder / storage.VECTORS) as path, path.open("wb") as file:
        np.save(file, vectors.astype(np.float16))


def read_vectors(folder: Path) -> np.ndarray:
    """Read ``phrases.npy`` as float32, each row of L2 norm 1 again."""
    vectors = np.load(folder / storage.VECTORS).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read_clusters(folder: Path) -> list[Cluster]:
    """Read ``clusters.jsonl``."""
    lines = storage.read_lines(folder / storage.CLUSTERS, {"kind": str, "phrases": list})
    return [Cluster(line["kind"], tuple(line["phrases"])) for line in lines]


def write_refined(folder: Path, refined: Iterable[tuple[Cluster, Refinement]]) -> None:
    """Write ``refined.jsonl``: what became of each cluster."""
    storage.write_lines(
        folder / storage.REFINED,
        (
            {
                "kind": cluster.kind,
                "groups": [group._asdict() for group in refinement.groups],
                "dropped": refinement.dropped,
                "problem": refinement.problem,
            }
            for cluster, refinement in refined
        ),
    )


def read_refined(folder: Path) -> list[tuple[Cluster, Refinement]]:
    """Read ``refined.jsonl``; the phrases of a cluster come in the order of its groups."""
    refined = []
    for line in storage.read_lines(folder / storage.REFINED, {"kind": str, "groups": list, "dropped": list}):
        groups = tuple(Group(group["canonical"], tuple(group["members"])) for group in line["groups"])
        refinement = Refinement(groups, tuple(line["dropped"]), line["problem"])
        phrases = (*(member for group in groups for member in group.members), *refinement.dropped)
        refined.append((Cluster(line["kind"], phrases), refinement))
    return refined
