"""Rows of (subject, relation, object) triplets, one row a caption, in JSON lines.

``{"sentid": <int|str>, "imgid": <int|str>, "triplets": [[subject, relation, object], ...]}``; any part may be empty.
The caption may stand beside them as ``"text"``.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Triplet = tuple[str, str, str]

#: The kind of the concept that each part of a triplet names.
PART_KINDS = ("entity", "relation", "entity")


class TripletRow(NamedTuple):
    """The triplets of one caption.

    Attributes:
        sentid: The caption's qid.
        imgid: The image's id; None if the row has none.
        triplets: The triplets.
        text: The caption; None if the row has none.
    """

    sentid: str
    imgid: str | None
    triplets: list[Triplet]
    text: str | None = None


def normalise(phrase: str) -> str:
    """Lower the case, strip, and collapse white space: ``"  Hot\\tDog "`` -> ``"hot dog"``."""
    return " ".join(phrase.lower().split())


def check_triplets(triplets: Any, where: str) -> list[Triplet]:
    """Check that a value is a list of triplets of strings.

    Args:
        triplets: The value.
        where: Named in the error.

    Returns:
        The triplets, each as a tuple, otherwise unchanged.

    Raises:
        ValueError: If it is anything else.
    """
    if not isinstance(triplets, list | tuple):
        raise ValueError(f"{where}: 'triplets' must be a list, got {triplets!r}")
    for triplet in triplets:
        well_formed = isinstance(triplet, list | tuple) and len(triplet) == 3
        if not well_formed or not all(isinstance(part, str) for part in triplet):
            raise ValueError(f"{where}: a triplet is three strings (subject, relation, object), got {triplet!r}")
    return [tuple(triplet) for triplet in triplets]


def read_rows(path: str | Path) -> Iterator[TripletRow]:
    """Read a file of triplets, plain or gzip-compressed (``.gz``).

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is malformed or the file is cut off, with the place.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of triplets at {path}")
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _parse(line, f"{path}, line {number}")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or cut off: {error}") from error


def _parse(line: str, where: str) -> TripletRow:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected an object, got {row!r}")
    for field in ("sentid", "triplets"):
        if field not in row:
            raise ValueError(f"{where}: the field {field!r} is missing")
    imgid = row.get("imgid")
    for field, value in (("sentid", row["sentid"]), ("imgid", "" if imgid is None else imgid)):
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise ValueError(f"{where}: {field!r} must be an integer or a string, got {value!r}")
    text = row.get("text")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{where}: 'text' must be a string, got {text!r}")
    triplets = check_triplets(row["triplets"], where)
    return TripletRow(str(row["sentid"]), None if imgid is None else str(imgid), triplets, text)
