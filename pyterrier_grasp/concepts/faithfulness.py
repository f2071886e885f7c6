"""Whether captions support the triplets extracted from them, judged by a model of natural language inference (NLI).

The paper's footnote 4 runs RoBERTa-Large-MNLI on captions and their triplets and finds 1.50 % contradicted. It does not
say how: judging each triplet by itself, and the way :func:`sentence` words it, are ours.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from pyterrier_grasp.concepts.triplets import Triplet, check_triplets

#: What an NLI model says about a text and a sentence.
VERDICTS = ("entailment", "neutral", "contradiction")

_EXAMPLES = 10
_PREPOSITIONS = frozenset(
    "about above across after against along alongside amid among around as at atop before behind below beneath beside "
    "between beyond by down during for from in inside into near next of off on onto out outside over past through "
    "to toward towards under underneath up upon via with within without".split()
)
_PROGRESSIVE = re.compile(r".*[aeiouy].*ing$")  # "running", not "bring"


class Contradiction(NamedTuple):
    """A triplet that a model thinks its text contradicts.

    Attributes:
        text: The text.
        triplet: The triplet.
        sentence: The sentence that the triplet was made into.
        probability: The model's probability of a contradiction, in [0, 1].
    """

    text: str
    triplet: Triplet
    sentence: str
    probability: float


class Faithfulness(NamedTuple):
    """How faithful triplets are to their texts.

    Attributes:
        entailed: Share of the triplets that the model thinks follow from their text, in [0, 1].
        neutral: Share that may be true or not.
        contradicted: Share that contradict it.
        n: Number of triplets judged.
        examples: The up to ten contradicted ones of which the model is surest.
    """

    entailed: float
    neutral: float
    contradicted: float
    n: int
    examples: tuple[Contradiction, ...]

    def __str__(self) -> str:
        return (
            f"of {self.n} triplets {self.entailed:.2%} are entailed by their text, {self.neutral:.2%} neutral, "
            f"{self.contradicted:.2%} contradicted"
        )


def check(
    texts: Sequence[str],
    triplets: Sequence[Sequence[Triplet]],
    nli_model: str | Path,
    *,
    labels: Sequence[str] | None = None,
    sample: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    device: Any = None,
    verbose: bool = True,
) -> Faithfulness:
    """Judge a random sample of triplets against their texts.

    Args:
        texts: The texts, such as captions.
        triplets: The triplets of each.
        nli_model: Hub id or folder of a transformers model for sequence classification trained on NLI, such as
            ``"FacebookAI/roberta-large-mnli"`` (the paper's).
        labels: The order of its outputs, such as ``("contradiction", "neutral", "entailment")``; by default as its
            configuration says.
        sample: How many triplets to judge, of all those with a word in them; all if there are fewer.
        seed: Seed of the sample.
        batch_size: Triplets judged at a time.
        device: Where to compute; a GPU if there is one, by default.
        verbose: Whether to show progress.

    Returns:
        The shares of the verdicts.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If there is no triplet to judge, texts and triplets do not fit, the meaning of the model's outputs
            cannot be told, or an argument is out of range.
    """
    for name, value, least in (("sample", sample, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    pairs = _pairs(texts, triplets)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(pairs))[:sample])
    pairs = [pairs[i] for i in chosen]
    sentences = [sentence(triplet) for _, triplet in pairs]
    probabilities = _probabilities(
        [text for text, _ in pairs], sentences, nli_model, labels, batch_size, device, verbose
    )
    verdicts = probabilities.argmax(1)
    shares = np.bincount(verdicts, minlength=len(VERDICTS)) / len(pairs)
    contradicted = np.flatnonzero(verdicts == VERDICTS.index("contradiction"))
    surest = contradicted[np.argsort(-probabilities[contradicted, 2], kind="stable")][:_EXAMPLES]
    examples = [
        Contradiction(pairs[i][0], pairs[i][1], sentences[i], float(probabilities[i, 2])) for i in surest.tolist()
    ]
    entailed, neutral, contradiction = shares.tolist()
    return Faithfulness(entailed, neutral, contradiction, len(pairs), tuple(examples))


def sentence(triplet: Triplet) -> str:
    """Make a triplet a sentence: its parts in order, with "is" before a preposition, before an -ing form, and for a
    missing relation. Empty parts are left out; a subject alone is said to be there.

    ``("dog", "in", "snow")`` -> ``"Dog is in snow."``; ``("dog", "", "")`` -> ``"There is dog."``
    """
    subject, relation, object_ = (" ".join(part.split()) for part in triplet)
    first = relation.split(" ")[0].lower()
    if not relation:
        relation = "is" if subject and object_ else ""
    elif subject and (first in _PREPOSITIONS or _PROGRESSIVE.match(first)):
        relation = f"is {relation}"
    words = " ".join(part for part in (subject, relation, object_) if part)
    if not relation and words:
        words = f"there is {words}"
    return words[:1].upper() + words[1:] + "." if words else ""


def _pairs(texts: Sequence[str], triplets: Sequence[Sequence[Triplet]]) -> list[tuple[str, Triplet]]:
    """Each text with each of its triplets that has a word in it."""
    if len(texts) != len(triplets):
        raise ValueError(f"there are {len(texts)} texts, but triplets of {len(triplets)}")
    pairs = []
    for number, (text, own) in enumerate(zip(texts, triplets, strict=True)):
        if not isinstance(text, str):
            raise ValueError(f"text number {number} is {text!r}, which is not a string")
        pairs += [(text, triplet) for triplet in check_triplets(own, f"text number {number}") if sentence(triplet)]
    if not pairs:
        raise ValueError(f"none of the {len(texts)} texts has a triplet to check")
    return pairs


def _probabilities(
    texts: list[str],
    sentences: list[str],
    nli_model: str | Path,
    labels: Sequence[str] | None,
    batch_size: int,
    device: Any,
    verbose: bool,
) -> np.ndarray:
    """The probability of each of :data:`VERDICTS` for each pair, float ``[n, 3]``."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from pyterrier_grasp import pretrained
    from pyterrier_grasp.backbones.base import default_device

    tokenizer = pretrained.tokenizer(nli_model)
    model = pretrained.model(nli_model, AutoModelForSequenceClassification).to(device or default_device())
    config: Any = model.config
    if labels is None:
        labels = [config.id2label.get(i, "") for i in range(config.num_labels)]
    order = _order(labels, config.num_labels, nli_model)
    # two less: RoBERTa counts positions from 2
    longest = min(tokenizer.model_max_length, (getattr(config, "max_position_embeddings", None) or 514) - 2)
    found = np.empty((len(texts), len(VERDICTS)))
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]) + len(sentences[i]))  # little padding
    with tqdm(total=len(texts), desc="faithfulness", unit="triplet", disable=not verbose) as bar, torch.no_grad():
        for start in range(0, len(texts), batch_size):
            rows = by_length[start : start + batch_size]
            encoded = tokenizer(
                [_clean(texts[i]) for i in rows],
                [_clean(sentences[i]) for i in rows],
                padding="longest",
                truncation="longest_first",
                max_length=longest,
                return_tensors="pt",
            ).to(next(model.parameters()).device)
            found[rows] = model(**encoded).logits.float().softmax(1)[:, order].cpu().numpy()
            bar.update(len(rows))
    return found


def _order(labels: Sequence[str], outputs: int, nli_model: str | Path) -> list[int]:
    """Which output of a model is which of :data:`VERDICTS`."""
    names = [str(label).lower() for label in labels]
    found = [[i for i, name in enumerate(names) if name.startswith(verdict[:6])] for verdict in VERDICTS]
    if any(len(own) != 1 for own in found) or not len(names) == outputs == len(VERDICTS):
        raise ValueError(
            f"cannot tell which of the {outputs} outputs of {nli_model} stand for {', '.join(VERDICTS)}: they are "
            f"called {list(labels)}. Give their order, such as labels=('contradiction', 'neutral', 'entailment'), or "
            f"use a model trained on NLI with these three"
        )
    return [own[0] for own in found]


def _clean(text: str) -> str:
    """Half a surrogate pair is no valid Unicode and stops tokenizers written in Rust."""
    return text.encode("utf-8", "replace").decode("utf-8")
