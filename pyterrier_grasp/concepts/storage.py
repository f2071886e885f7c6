"""A concept space on disk: a folder of plain files that a person can read and edit.

``concepts.jsonl``
    One concept a line, in the order of the dimensions: ``{"name", "kind", "df", "text_df", "members"}``. A line may be
    removed, or its name changed; the members are the phrases that count as the concept.
``aliases.jsonl``
    Further phrases: ``{"phrase", "kind", "concept"}``.
``triplets.jsonl``
    The training captions (``sentid`` is the qid, ``imgid`` the docno, ``text`` the caption), from which labels and
    frequencies are computed.
``phrases.jsonl``, ``phrases.npy``, ``clusters.jsonl``, ``refined.jsonl``, ``descriptions.jsonl``
    What the other steps of the build left (:mod:`pyterrier_grasp.concepts.mining.files`); a space works without them.
``build.json``
    Each step with its settings, counts, seconds and cost.
``pt_meta.json``
    Written last. It keeps a checksum of the other files; where one no longer fits, frequencies are computed anew.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.extract.base import CaptionTriplets
from pyterrier_grasp.concepts.triplets import check_triplets, read_rows
from pyterrier_grasp.concepts.vocabulary import Alias, Concept, Vocabulary

META, BUILD = "pt_meta.json", "build.json"
CONCEPTS, ALIASES, TRIPLETS = "concepts.jsonl", "aliases.jsonl", "triplets.jsonl"
PHRASES, VECTORS, CLUSTERS, REFINED = "phrases.jsonl", "phrases.npy", "clusters.jsonl", "refined.jsonl"
DESCRIPTIONS = "descriptions.jsonl"

#: What a space cannot do without.
DATA_FILES = (CONCEPTS, ALIASES, TRIPLETS)
#: What the steps of a build write.
STEP_FILES = (TRIPLETS, PHRASES, VECTORS, CLUSTERS, REFINED, CONCEPTS, ALIASES)
#: How a space came about, which goes along when it is saved elsewhere.
HISTORY = (PHRASES, CLUSTERS, REFINED, DESCRIPTIONS, BUILD)


def check_target(path: Path, *, overwrite: bool = True) -> None:
    """Check that a concept space may be written to ``path``.

    Args:
        path: The folder.
        overwrite: Whether a concept space at ``path`` may be replaced.

    Raises:
        FileExistsError: If ``path`` exists and ``overwrite`` is false, or if it holds anything but a concept space.
    """
    if not path.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{path} exists; choose another path or pass overwrite=True")
    own = {*STEP_FILES, *HISTORY, META}
    strangers = sorted(p.name for p in path.iterdir() if p.name not in own) if path.is_dir() else ["it"]
    if strangers:
        raise FileExistsError(f"{path} is not only a concept space ({strangers[:3]}): it is not overwritten")


def write_triplets(folder: Path, rows: Iterable[Any], texts: Mapping[str, str]) -> dict[str, int]:
    """Write ``triplets.jsonl``.

    Args:
        folder: The folder.
        rows: ``{"qid", "docno", "triplets"}``.
        texts: The caption of each qid, where it is known.

    Returns:
        How many ``rows`` and ``triplets`` were written, and how many rows are ``without_triplets``.

    Raises:
        ValueError: If a row has no list of triplets of strings; nothing is written then.
    """
    counts = {"rows": 0, "triplets": 0, "without_triplets": 0}

    def records() -> Iterator[dict[str, Any]]:
        for row in rows:
            qid, docno = str(row["qid"]), str(row["docno"])
            triplets = check_triplets(row["triplets"], f"caption {qid!r}")
            counts["rows"] += 1
            counts["triplets"] += len(triplets)
            counts["without_triplets"] += not triplets
            text = {"text": texts[qid]} if qid in texts else {}
            yield {"sentid": qid, "imgid": docno, **text, "triplets": triplets}

    write_lines(folder / TRIPLETS, records())
    return counts


def write_concepts(folder: Path, vocabulary: Vocabulary, corpus: Corpus) -> None:
    """Write ``concepts.jsonl``, with frequencies in the training captions, and ``aliases.jsonl``."""
    text_labels = vocabulary.labels(corpus.triplets)
    df, text_df = frequency(corpus.image_labels(text_labels)), frequency(text_labels)
    write_lines(
        folder / CONCEPTS,
        (
            {"name": name, "kind": kind, "df": images, "text_df": texts, "members": list(own)}
            for name, kind, images, texts, own in zip(
                vocabulary.plain_names,
                vocabulary.kinds,
                df.tolist(),
                text_df.tolist(),
                vocabulary.own_members,
                strict=True,
            )
        ),
    )
    write_lines(folder / ALIASES, (alias._asdict() for alias in vocabulary.aliases))


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write the metadata of a folder whose other files are there, which makes it whole."""
    vocabulary, _ = read_vocabulary(folder)
    corpus = read_corpus(folder)
    content = {
        "type": "concept_space",
        "format": "grasp",
        "package_hint": "pyterrier_grasp",
        **meta,
        "fingerprint": vocabulary.fingerprint(),
        "n_concepts": len(vocabulary),
        "n_images": len(corpus.docnos),
        "n_texts": len(corpus.qids),
        "sha256": {name: digest(folder / name) for name in DATA_FILES},
    }
    (folder / META).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read the metadata and check that the folder is whole.

    Raises:
        FileNotFoundError: If the folder or one of its files is missing.
        ValueError: If it holds another artifact, or unreadable metadata.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no concept space at {folder}")
    if not (folder / META).is_file():
        raise FileNotFoundError(
            f"{folder} is no complete concept space: {META}, which is written last, is missing; build it again"
        )
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        kind, form, _ = meta["type"], meta["format"], meta["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / META} is not the metadata of a concept space: {error!r}") from error
    if (kind, form) != ("concept_space", "grasp"):
        raise ValueError(f"{folder} holds the artifact {kind}.{form}, not a concept space")
    for name in DATA_FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is no complete concept space: {name} is missing; build it again")
    return meta


def read_vocabulary(folder: Path) -> tuple[Vocabulary, list[dict[str, Any]]]:
    """Read the concepts and aliases.

    Returns:
        The vocabulary and the lines of ``concepts.jsonl``.

    Raises:
        ValueError: If a line is malformed, or concepts and aliases contradict each other.
    """
    lines = read_lines(folder / CONCEPTS, required={"name": str, "kind": str})
    for line in lines:
        members = line.setdefault("members", [])
        if not isinstance(members, list) or not all(isinstance(m, str) for m in members):
            raise ValueError(f"{folder / CONCEPTS}: the members of {line['name']!r} must be a list of strings")
    aliases = read_lines(folder / ALIASES, required={"phrase": str, "kind": str, "concept": str})
    try:
        vocabulary = Vocabulary(
            ((line["kind"], line["name"], line["members"]) for line in lines),
            [Alias(a["phrase"], a["kind"], a["concept"]) for a in aliases],
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return vocabulary, lines


def read_corpus(folder: Path) -> Corpus:
    """Read the training captions."""
    texts: dict[str, str] = {}

    def rows() -> Iterator[CaptionTriplets]:
        for row in read_rows(folder / TRIPLETS):
            if row.imgid is None:
                raise ValueError(f"{folder / TRIPLETS}: the caption {row.sentid!r} has no 'imgid'")
            if row.text is not None:
                texts[row.sentid] = row.text
            yield {"qid": row.sentid, "docno": row.imgid, "triplets": row.triplets}

    return Corpus(rows(), texts)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def concepts_of(vocabulary: Vocabulary, df: np.ndarray, text_df: np.ndarray) -> tuple[Concept, ...]:
    """Put names, phrases and frequencies together."""
    return tuple(
        Concept(*fields)
        for fields in zip(
            vocabulary.plain_names, vocabulary.kinds, df.tolist(), text_df.tolist(), vocabulary.members(), strict=True
        )
    )


def frequency(labels: csr_array) -> np.ndarray:
    """In how many rows each concept has a label, int64 ``[|C|]``."""
    return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64)


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines; the file gets its name when all are there. Half a surrogate pair is written as an escape."""
    with aside(path) as new, new.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Write a file under another name; it gets its own at the end."""
    new = path.with_name(path.name + ".new")
    try:
        yield new
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def read_lines(path: Path, required: dict[str, type]) -> list[dict[str, Any]]:
    """Read JSON lines.

    Args:
        path: The file.
        required: Fields that each line must have, with their types.

    Raises:
        ValueError: If a line is malformed, with the place.
    """
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not valid JSON: {error}") from error
        for field, kind in required.items():
            if not isinstance(record, dict) or not isinstance(record.get(field), kind):
                raise ValueError(f"{path}, line {number}: the field {field!r} must be a {kind.__name__}: {line[:80]}")
        records.append(record)
    return records
