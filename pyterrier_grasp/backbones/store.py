"""Reading cached token states in batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pyterrier_grasp.backbones.states import TokenStates


class StateStore:
    """Token states of many inputs of one modality, found by key, usually memory-mapped.

    Args:
        states: float ``[T, D]``, the tokens of all inputs one after another.
        offsets: int64 ``[n + 1]``; input ``i`` owns the tokens ``offsets[i]`` to ``offsets[i + 1] - 1``.
        keys: the n keys.
        special: bool ``[T]``, True for CLS and the like; None if there are none.
        name: where the states came from, for messages.

    Raises:
        ValueError: if the sizes do not fit each other.
    """

    def __init__(
        self, states: np.ndarray, offsets: np.ndarray, keys: Sequence[str], special: np.ndarray | None, name: str
    ) -> None:
        if len(offsets) != len(keys) + 1 or offsets[-1] != len(states):
            raise ValueError(f"{name}: {len(keys)} keys, {len(offsets)} offsets and {len(states)} tokens do not fit")
        self._states = states
        self._special = special
        self._offsets = np.asarray(offsets, np.int64)
        self._lengths = np.diff(self._offsets)
        self._row_of = {key: row for row, key in enumerate(keys)}
        self._name = name
        # where all inputs have one length, whole inputs are gathered instead of single tokens
        self._length = int(self._lengths[0]) if len(keys) and (self._lengths == self._lengths[0]).all() else None

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def __repr__(self) -> str:
        return f"StateStore({self._name!r}, {len(self)} inputs, dim {self.dim})"

    @property
    def dim(self) -> int:
        """The width D of a token state."""
        return self._states.shape[1]

    @property
    def lengths(self) -> np.ndarray:
        """int64 ``[n]``, the number of tokens of each input."""
        return self._lengths

    def rows(self, keys: Sequence[str]) -> np.ndarray:
        """Returns the row of each key, int64 ``[len(keys)]``.

        Raises:
            KeyError: for a key that is not stored; names it.
        """
        try:
            return np.fromiter((self._row_of[key] for key in keys), np.int64, count=len(keys))
        except KeyError as error:
            raise KeyError(f"no states of {error.args[0]!r} among the {len(self)} in {self._name}") from None

    def batch(self, rows: Sequence[int] | np.ndarray) -> TokenStates:
        """Returns the states of some rows, on the CPU, padded to the longest.

        Args:
            rows: int ``[B]``, as :meth:`rows` gives them, in any order.

        Raises:
            IndexError: for a row out of range.
        """
        rows = np.asarray(rows, np.int64)
        if not len(rows):
            return TokenStates.empty(self.dim)
        if rows.min() < 0 or rows.max() >= len(self):
            raise IndexError(f"rows must be within 0 and {len(self) - 1}, found {rows.min()} to {rows.max()}")
        if self._length is not None:
            shape = (len(self), self._length)
            states = torch.from_numpy(self._states.reshape(*shape, self.dim)[rows]).float()
            special = np.zeros((len(rows), self._length), bool)
            if self._special is not None:
                special = self._special.reshape(shape)[rows].astype(bool)
            return TokenStates(states, torch.ones(special.shape, dtype=torch.bool), torch.from_numpy(special))
        lengths = self._lengths[rows]
        mask = np.arange(lengths.max()) < lengths[:, None]
        tokens = (self._offsets[rows][:, None] + np.arange(lengths.max()))[mask]
        padded = torch.zeros(*mask.shape, self.dim)
        padded[torch.from_numpy(mask)] = torch.from_numpy(self._states[tokens]).float()
        special = np.zeros(mask.shape, bool)
        if self._special is not None:
            special[mask] = self._special[tokens].astype(bool)
        return TokenStates(padded, torch.from_numpy(mask), torch.from_numpy(special))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if isinstance(self._states, np.memmap):
            # a memory map would be pickled with all its content; the other process opens the file again
            array = self._states
            state["_states"] = (str(array.filename), array.dtype, array.offset, array.shape)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_states"], tuple):
            file, dtype, offset, shape = state["_states"]
            state = {**state, "_states": np.memmap(file, dtype, mode="r", offset=offset, shape=shape)}
        self.__dict__.update(state)
