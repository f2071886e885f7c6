"""Concepts dropped, merged and renamed."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pyterrier_grasp.concepts.triplets import normalise
from pyterrier_grasp.concepts.vocabulary import KINDS, Alias, Vocabulary


def edited(
    vocabulary: Vocabulary, *, drop: Iterable[str], merge: Mapping[str, Iterable[str]], rename: Mapping[str, str]
) -> Vocabulary:
    """A vocabulary with other concepts, in the old order; a merged concept stands where the first of its parts stood.

    Args:
        vocabulary: The old one.
        drop: Dimension names of concepts to remove.
        merge: Name -> dimension names of the concepts of one kind that become part of it. The name may be new.
        rename: Dimension name -> new name.

    Returns:
        The new vocabulary. Old names and their phrases are aliases.

    Raises:
        KeyError: If a concept is unknown, with the nearest names.
        ValueError: If a concept is named by two edits, kinds are mixed, a name is taken, or nothing is left.
    """
    if isinstance(drop, str) or any(isinstance(parts, str) for parts in merge.values()):
        raise ValueError("drop and the values of merge are lists of names, not one name")
    number = {name: j for j, name in enumerate(vocabulary.names)}
    used: dict[int, str] = {}

    def claim(name: str, edit: str) -> int:
        if name not in number:
            plain = normalise(name)
            of_kinds = [f"{kind}:{plain}" for kind in KINDS if f"{kind}:{plain}" in number]
            near = of_kinds or get_close_matches(plain, number, n=3)
            raise KeyError(f"{edit}: there is no concept {name!r}; the nearest are {near}")
        j = number[name]
        if j in used:
            raise ValueError(
                f"the concept {name!r} is named by {used[j]} and by {edit}; apply one edit after the other"
            )
        used[j] = edit
        return j

    members = vocabulary.members()
    names = list(vocabulary.plain_names)
    phrases = [list(own) for own in members]
    gone = {claim(name, "drop") for name in drop}
    for target, parts in merge.items():
        edit = f"merge into {target!r}"
        joined = sorted(
            {claim(name, edit) for name in dict.fromkeys([*parts, *([target] if target in number else [])])}
        )
        kinds = {vocabulary.kinds[j] for j in joined}
        if not joined or len(kinds) > 1:
            raise ValueError(
                f"{edit}: the parts must be concepts of one kind, got {[vocabulary.names[j] for j in joined]}"
            )
        first = joined[0]
        names[first] = vocabulary.plain_names[number[target]] if target in number else target
        phrases[first] = [phrase for j in joined for phrase in members[j]]
        gone.update(joined[1:])
    for name, new in rename.items():
        names[claim(name, f"rename to {new!r}")] = new
    kept = [j for j in range(len(vocabulary)) if j not in gone]
    concepts = [(vocabulary.kinds[j], names[j], ()) for j in kept]
    aliases = [
        Alias(phrase, vocabulary.kinds[j], normalise(names[j]))
        for j in kept
        for phrase in phrases[j]
        if phrase != normalise(names[j])
    ]
    return Vocabulary(concepts, aliases)
