"""Size-matched pruning of a token space (the paper's section 4.1.2 and Figure 2a)."""

import numpy as np
from scipy.sparse import csr_array


def top_activated(vectors: list[csr_array], n: int) -> np.ndarray:
    """The ``n`` dimensions with the largest sum of weights.

    ``model.restrict(top_activated([texts, images], n))`` prunes a model to them. The paper prunes "to the top-activated
    4K tokens" and does not say over what: ours is the training split's texts and images, both weighing the same.

    Args:
        vectors: Sparse vectors, CSR ``[., |V|]`` each, of one modality each; see :meth:`GraspModel.encode_states`.
        n: How many to keep.

    Returns:
        Columns, int64 ``[n]``, ascending; of equal sums the lower column is kept.

    Raises:
        ValueError: If ``n`` is not between 1 and the number of dimensions, or the matrices disagree about it.
    """
    widths = {matrix.shape[1] for matrix in vectors}
    if len(widths) != 1:
        raise ValueError(f"the vectors have {sorted(widths)} dimensions; give matrices of one space")
    width = widths.pop()
    if not 1 <= n <= width:
        raise ValueError(f"n is {n}; it must be between 1 and the {width} dimensions of the space")
    shares = np.zeros(width)
    for matrix in vectors:
        sums = np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()
        shares += sums / max(sums.sum(), np.finfo(float).tiny)
    return np.sort(np.argsort(-shares, kind="stable")[:n])
