"""A tokenizer's vocabulary, whole or in part, as the sparse space of the baselines."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from pyterrier_grasp.backbones.base import Backbone
from pyterrier_grasp.folders import whole_folder

FILE = "tokens.jsonl"


class TokenSpace:
    """Tokens of a text tower as the dimensions of a sparse space (STAIR, D2S, SDLBT, ...).

    On disk: ``tokens.jsonl``, a line a dimension.

    Args:
        ids: Id in the tokenizer of each dimension, int ``[|V|]``, each once.
        names: Its name; where a tokenizer has two tokens of one name, dictionaries cannot tell them apart.

    Raises:
        ValueError: If it is empty, or an id or a name occurs twice.
    """

    def __init__(self, ids: Sequence[int] | np.ndarray, names: Sequence[str]) -> None:
        self.ids = np.asarray(ids, dtype=np.int64)
        self.names = list(names)
        if not len(self.ids) or len(self.ids) != len(self.names):
            raise ValueError(f"a token space needs at least one token and a name for each, got {len(self.ids)} ids")
        for what, values in (("id", self.ids.tolist()), ("name", self.names)):
            if len(set(values)) < len(values):
                raise ValueError(f"a token {what} occurs twice among the {len(values)} of this token space")

    @classmethod
    def of(cls, backbone: Backbone) -> "TokenSpace":
        """The whole vocabulary of the backbone's text tower."""
        names = backbone.token_names()
        return cls(np.arange(len(names)), names)

    @classmethod
    def load(cls, folder: str | Path) -> "TokenSpace":
        """Open a folder that :meth:`save` made.

        Raises:
            FileNotFoundError: If the folder has no token space.
            ValueError: If its file is damaged.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no token space ({FILE} is missing)")
        try:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            return cls([row["id"] for row in rows], [row["name"] for row in rows])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error

    def save(self, folder: str | Path) -> "TokenSpace":
        """Write the folder; it appears whole or not at all.

        Raises:
            FileExistsError: If the folder exists.
        """
        if Path(folder).exists():
            raise FileExistsError(f"{folder} exists; choose another folder")
        rows = ({"id": int(i), "name": name} for i, name in zip(self.ids, self.names, strict=True))
        with whole_folder(Path(folder)) as target:
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (target / FILE).write_text(text, encoding="utf-8")
        return self

    def keep(self, columns: Sequence[int] | np.ndarray) -> "TokenSpace":
        """Only some dimensions, in the order given; int ``[n]``."""
        columns = np.asarray(columns, dtype=np.int64)
        return TokenSpace(self.ids[columns], [self.names[column] for column in columns])

    def seen_in(self, backbone: Backbone, texts: Iterable[str], *, min_texts: int = 1) -> "TokenSpace":
        """Only the tokens that occur in ``texts``, special ones left out.

        On a CPU a head over every position and 30,000 tokens is out of reach; the captions of a collection use a fifth
        of them or fewer.

        Args:
            backbone: Gives the tokenizer.
            texts: Training captions.
            min_texts: Keep a token that is in at least so many of them.

        Raises:
            ValueError: If no token is left.
        """
        counts = Counter(token for ids in backbone.token_ids(list(texts)) for token in set(ids))
        keep = {token for token, count in counts.items() if count >= min_texts} - backbone.special_ids
        if not keep:
            raise ValueError(f"no token occurs in {min_texts} of the texts; lower min_texts, or give more texts")
        return self.keep([column for column, token in enumerate(self.ids.tolist()) if token in keep])

    def multi_hot(self, backbone: Backbone, texts: Sequence[str]) -> sp.csr_array:
        """Which dimensions are among a caption's own tokens, ``{0, 1}`` float32 ``[n, |V|]``."""
        column = {int(i): at for at, i in enumerate(self.ids)}
        indptr, indices = [0], []
        for ids in backbone.token_ids(list(texts)):
            indices += sorted({column[i] for i in ids if i in column})
            indptr.append(len(indices))
        data = np.ones(len(indices), dtype=np.float32)
        return sp.csr_array((data, np.array(indices, dtype=np.int64), indptr), shape=(len(texts), len(self)))

    def embeddings(self, backbone: Backbone) -> Tensor:
        """Word embeddings of the dimensions, float32 ``[|V|, D_word]``."""
        return backbone.word_embeddings()[self.ids]

    @cached_property
    def fingerprint(self) -> str:
        """Stable id of the dimensions and their order, 16 hex digits."""
        return hashlib.sha256(json.dumps([self.ids.tolist(), self.names]).encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"TokenSpace({len(self)} tokens, {self.fingerprint})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSpace) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)
