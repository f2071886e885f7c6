"""What a concept space is like, for people to read."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_grasp.concepts import storage
from pyterrier_grasp.concepts.mining import files
from pyterrier_grasp.concepts.vocabulary import KINDS

if TYPE_CHECKING:
    from pyterrier_grasp.concepts.space import ConceptSpace

_SHOWN = 12


def report(space: "ConceptSpace") -> str:
    """Counts, labels a caption and an image, the most and least frequent concepts, and what refining did.

    Args:
        space: The space.

    Returns:
        Lines of text.
    """
    summary = space.summary()
    kinds = ", ".join(f"#{kind} {summary[kind]:,}" for kind in KINDS)
    lines = [
        f"{len(space):,} concepts ({kinds}) from {space.n_texts:,} captions of {space.n_images:,} images",
        f"{'labels of':<12}{'mean':>8}{'p95':>6}{'max':>6}   % of |C|: {'mean':>6}{'p95':>6}{'max':>6}",
    ]
    for what, title in (("text", "a caption"), ("image", "an image")):
        counts = [summary[f"labels_{what}_{figure}"] for figure in ("mean", "p95", "max")]
        shares = "".join(f"{100 * count / len(space):6.2f}" for count in counts)
        lines.append(f"{title:<12}{counts[0]:8.2f}{counts[1]:6.0f}{counts[2]:6.0f}{'':13}{shares}")
    for kind in KINDS:
        rows = np.flatnonzero(space.kinds == kind)
        if not len(rows):
            continue
        rows = rows[np.argsort(-space.df[rows], kind="stable")]
        lines.append(f"most frequent, {kind}: {_named(space, rows[:_SHOWN])}")
        once = int((space.df[rows] == 1).sum())
        lines.append(f"least frequent, {kind}: {_named(space, rows[-_SHOWN:])}; {once:,} in one image only")
    return "\n".join([*lines, *_refining(space)])


def _named(space: "ConceptSpace", rows: np.ndarray) -> str:
    return ", ".join(f"{space.names[row]} {space.df[row]:,}" for row in rows.tolist())


def _refining(space: "ConceptSpace") -> list[str]:
    folder = Path(str(space.path))
    if not (folder / storage.REFINED).is_file():
        return ["not refined: each phrase is a concept"]
    refined = files.read_refined(folder)
    concepts = zip(space.names, space.concepts, strict=True)
    merged = {name: concept.members[1:] for name, concept in concepts if len(concept.members) > 1}
    dropped = [phrase for _, refinement in refined for phrase in refinement.dropped]
    kept = [(cluster, r.problem) for cluster, r in refined if r.problem is not None]
    largest = sorted(merged.items(), key=lambda item: -len(item[1]))[:_SHOWN]
    return [
        f"refined: {sum(len(cluster.phrases) for cluster, _ in refined):,} phrases in {len(refined):,} clusters; "
        f"{sum(map(len, merged.values())):,} merged into {len(merged):,} concepts, {len(dropped):,} dropped",
        *(f"  {name} <- {', '.join(members[:8])}{', ...' if len(members) > 8 else ''}" for name, members in largest),
        f"  dropped: {', '.join(dropped[: 2 * _SHOWN])}{', ...' if len(dropped) > 2 * _SHOWN else ''}",
        f"  clusters kept as they were because the answer would not do: {len(kept):,}",
        *(f"    {cluster.phrases[0]}, ...: {problem}" for cluster, problem in kept[:3]),
    ]
