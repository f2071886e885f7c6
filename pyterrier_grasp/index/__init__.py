"""The index: stored dense vectors and concept weights, exact retrieval over both, and exact score fusion."""

from pyterrier_grasp.index.fuser import ScoreFuser
from pyterrier_grasp.index.grasp_index import GraspIndex
from pyterrier_grasp.index.indexer import GraspIndexer
from pyterrier_grasp.index.loaders import ToksLoader, VecLoader
from pyterrier_grasp.index.retrievers import DenseRetriever, FusedRetriever, SparseRetriever
from pyterrier_grasp.index.scorer import IndexScorer

__all__ = [
    "DenseRetriever",
    "FusedRetriever",
    "GraspIndex",
    "GraspIndexer",
    "IndexScorer",
    "ScoreFuser",
    "SparseRetriever",
    "ToksLoader",
    "VecLoader",
]
