"""A concept space on disk: a folder of plain files that a person can read and edit.

``concepts.jsonl``
    One concept a line, in the order of the dimensions: ``{"name", "kind", "df", "text_df", "members"}``. A line may be
    removed, or its name changed; the members are the phrases that count as the concept.
``aliases.jsonl``
    Further phrases: ``{"phrase", "kind", "concept"}``.
``triplets.jsonl``
    The training captions (``sentid`` is the qid, ``imgid`` the docno), from which labels and frequencies are computed.
``pt_meta.json``
    Written last. It keeps a checksum of the other files; where one no longer fits, frequencies are computed anew.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.triplets import read_rows
from pyterrier_grasp.concepts.vocabulary import Alias, Concept, Vocabulary

META = "pt_meta.json"
CONCEPTS, ALIASES, TRIPLETS = "concepts.jsonl", "aliases.jsonl", "triplets.jsonl"
DATA_FILES = (CONCEPTS, ALIASES, TRIPLETS)


def check_target(path: Path, *, overwrite: bool) -> None:
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
    strangers = sorted(p.name for p in path.iterdir() if p.name not in (*DATA_FILES, META)) if path.is_dir() else ["it"]
    if strangers:
        raise FileExistsError(f"{path} is not only a concept space ({strangers[:3]}): it is not overwritten")


def write_space(
    folder: Path, vocabulary: Vocabulary, concepts: Sequence[Concept], corpus: Corpus, meta: dict[str, Any]
) -> None:
    """Write the files of a concept space into a folder, the metadata last."""
    _write_lines(
        folder / CONCEPTS,
        (
            {"name": c.name, "kind": c.kind, "df": c.df, "text_df": c.text_df, "members": list(own)}
            for c, own in zip(concepts, vocabulary.own_members, strict=True)
        ),
    )
    _write_lines(folder / ALIASES, (alias._asdict() for alias in vocabulary.aliases))
    _write_lines(
        folder / TRIPLETS,
        ({"sentid": r["qid"], "imgid": r["docno"], "triplets": r["triplets"]} for r in corpus.rows()),
    )
    content = {
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
    lines = _read_lines(folder / CONCEPTS, required={"name": str, "kind": str})
    for line in lines:
        members = line.setdefault("members", [])
        if not isinstance(members, list) or not all(isinstance(m, str) for m in members):
            raise ValueError(f"{folder / CONCEPTS}: the members of {line['name']!r} must be a list of strings")
    aliases = _read_lines(folder / ALIASES, required={"phrase": str, "kind": str, "concept": str})
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
    rows: list[Any] = []
    for row in read_rows(folder / TRIPLETS):
        if row.imgid is None:
            raise ValueError(f"{folder / TRIPLETS}: the caption {row.sentid!r} has no 'imgid'")
        rows.append({"qid": row.sentid, "docno": row.imgid, "triplets": row.triplets})
    return Corpus(rows)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def concepts_of(vocabulary: Vocabulary, df: np.ndarray, text_df: np.ndarray) -> tuple[Concept, ...]:
    """Put names, phrases and frequencies together."""
    return tuple(
        Concept(*fields)
        for fields in zip(
            vocabulary.plain_names, vocabulary.kinds, df.tolist(), text_df.tolist(), vocabulary.members(), strict=True
        )
    )


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _read_lines(path: Path, required: dict[str, type]) -> list[dict[str, Any]]:
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
