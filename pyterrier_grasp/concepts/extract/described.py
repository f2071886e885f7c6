"""A training split with generated descriptions among its captions, and the file that keeps these."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_grasp.datasets.catalog import TOPS
from pyterrier_grasp.datasets.local_dataset import is_local

#: Names of splits that models are chosen or measured on.
EVALUATION_SPLITS = ("val", "valid", "validation", "dev", "test", "testing", "eval")


class DescribedDataset:
    """A training split in which each described image has one more caption, its description.

    Topics and qrels hold the descriptions after the captions, under the qid ``<docno>#description``; everything else is
    that of the dataset. Build the concept space from it and give its topics and qrels to the trainer, as the paper
    does; a test split must not have descriptions.

    Args:
        dataset: The PyTerrier dataset, a training split.
        path: The file that :func:`~pyterrier_grasp.concepts.extract.describe.describe` wrote.
        any_split: Whether a dataset whose id does not name a training split is accepted.

    Attributes:
        descriptions: Docno -> description.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is malformed or describes images that are not in the qrels of the dataset, the dataset
            is no training split, or one of its qids is that of a description.
    """

    def __init__(self, dataset: Any, path: str | Path, *, any_split: bool = False) -> None:
        check_split(dataset, any_split=any_split)
        self._dataset = dataset
        self.path = Path(path)
        self.descriptions: dict[str, str] = read_descriptions(self.path)
        self._docnos = relevant_docnos(dataset)
        foreign = [docno for docno in self.descriptions if docno not in self._docnos]
        if foreign:
            raise ValueError(
                f"{self.path} describes {len(foreign)} images that are not in the qrels of {dataset!r}, such as "
                f"{foreign[:3]}: it was made for another dataset or split"
            )
        taken = sorted(set(map(str, dataset.get_topics()["qid"])) & set(self._qids()))
        if taken:
            raise ValueError(f"{dataset!r} already has captions under the qids of descriptions, such as {taken[:3]}")

    def __repr__(self) -> str:
        return f"DescribedDataset({self._dataset!r}, {str(self.path)!r})"

    def __getattr__(self, name: str) -> Any:
        if "_dataset" not in self.__dict__:  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def get_topics(self, *args: Any, **kwargs: Any) -> pd.DataFrame:
        """The captions, then the descriptions. Arguments are those of the dataset's own method."""
        rows = {"qid": self._qids(), "query": list(self.descriptions.values())}
        return _append(self._dataset.get_topics(*args, **kwargs), rows)

    def get_qrels(self, *args: Any, **kwargs: Any) -> pd.DataFrame:
        """Which image each belongs to. Arguments are those of the dataset's own method."""
        docnos = [self._docnos[docno] for docno in self.descriptions]
        rows = {"qid": self._qids(), "docno": docnos, "label": [1] * len(docnos)}
        return _append(self._dataset.get_qrels(*args, **kwargs), rows)

    def get_topicsqrels(self, *args: Any, **kwargs: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Topics and qrels."""
        return self.get_topics(*args, **kwargs), self.get_qrels(*args, **kwargs)

    def _qids(self) -> list[str]:
        return [f"{docno}#description" for docno in self.descriptions]


def _append(frame: pd.DataFrame, rows: Mapping[str, list[Any]]) -> pd.DataFrame:
    """Add rows below a frame; a further column of it (such as ``iteration``) keeps the value of its first row."""
    n = len(next(iter(rows.values())))
    if not n:
        return frame
    others = {column: [frame[column].iloc[0]] * n for column in frame.columns if column not in rows}
    return pd.concat([frame, pd.DataFrame({**rows, **others})[list(frame.columns)]], ignore_index=True)


def relevant_docnos(dataset: Any) -> dict[str, Any]:
    """The images that captions of a dataset belong to, in the order of the qrels: as a string -> as it stands there."""
    qrels = dataset.get_qrels()
    docnos = qrels["docno"][qrels["label"] > 0]
    return {str(docno): docno for docno in docnos}


def check_split(dataset: Any, *, any_split: bool) -> None:
    """Check that a dataset may have descriptions. One without an ir_datasets id is taken to be a training split.

    Args:
        dataset: A PyTerrier dataset.
        any_split: Whether any is accepted.

    Raises:
        ValueError: If its id names a split for validation or testing, or a whole collection with all its splits.
    """
    if any_split or not hasattr(dataset, "irds_ref"):
        return
    name = dataset.irds_ref().dataset_id()
    split = name.rpartition("/")[2]
    whole = (name.split("/")[0] in TOPS or is_local(name)) and not split.startswith("train")
    if whole or split in EVALUATION_SPLITS:
        raise ValueError(
            f"{name} is no training split. Generated descriptions are for training only: measured on them, a model "
            f"would be tested with texts that no user wrote. Describe the training split; if {name} is one, give "
            f"any_split=True"
        )


def write_descriptions(path: Path, descriptions: Mapping[str, str]) -> None:
    """Write ``{"docno", "text"}``, one a line. The file gets its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            for docno, text in descriptions.items():
                file.write(json.dumps({"docno": docno, "text": text}, ensure_ascii=False) + "\n")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_descriptions(path: Path) -> dict[str, str]:
    """Read a file of descriptions: docno -> text.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is malformed or an image occurs twice, with the place.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of descriptions at {path}; make one with describe(dataset, path)")
    descriptions: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not valid JSON: {error}") from error
        docno, text = (row.get("docno"), row.get("text")) if isinstance(row, dict) else (None, None)
        if not (isinstance(docno, str) and docno and isinstance(text, str) and text.strip()):
            raise ValueError(f'{path}, line {number}: expected {{"docno": "...", "text": "..."}}, got {line[:80]}')
        if docno in descriptions:
            raise ValueError(f"{path}, line {number}: the image {docno!r} is described twice")
        descriptions[docno] = text
    return descriptions
