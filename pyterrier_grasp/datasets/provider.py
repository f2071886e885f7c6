"""PyTerrier's door to the datasets: ``pt.get_dataset("grasp:flickr30k/test")`` works without importing this package."""

from collections.abc import Iterable

import pyterrier as pt

from pyterrier_grasp.datasets import catalog, register
from pyterrier_grasp.datasets.local_dataset import is_local


class GraspDatasetProvider(pt.datasets.DatasetProvider):
    """Provider of the datasets of this package, under the prefix ``grasp:``."""

    def get_dataset(self, name: str) -> pt.datasets.Dataset:
        """Return a dataset.

        Args:
            name: An id such as ``"coco/test"``, or that of a local dataset.

        Returns:
            The same dataset as ``pt.get_dataset(f"irds:{name}")``.

        Raises:
            KeyError: If there is no such dataset, with those there are.
        """
        register()
        if name.split("/")[0] not in catalog.TOPS and not is_local(name):
            raise KeyError(f"there is no dataset 'grasp:{name}'; there are {', '.join(catalog.names())}")
        return pt.get_dataset(f"irds:{name}")

    def list_dataset_names(self) -> Iterable[str]:
        """Ids of the catalogue."""
        return catalog.names()
