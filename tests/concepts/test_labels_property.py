"""Labels and frequencies against sets, on random triplets."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_grasp.concepts import ConceptSpace

PHRASE = st.sampled_from(["", " ", "dog", " Dog", "DOG\t", "hot  dog", "hot dog", "run", "Run", "ß", "SS", "狗", "i̇"])
TRIPLETS = st.lists(st.tuples(PHRASE, PHRASE, PHRASE), max_size=4)
IMAGES = st.lists(st.lists(TRIPLETS, min_size=1, max_size=3), min_size=1, max_size=5)


class Rows:
    def __init__(self, images):
        self.rows = [
            {"qid": f"{i}-{t}", "docno": f"image{i}", "triplets": triplets}
            for i, texts in enumerate(images)
            for t, triplets in enumerate(texts)
        ]

    def get_topics(self):
        return pd.DataFrame([(row["qid"], "a caption") for row in self.rows], columns=["qid", "query"])

    def get_qrels(self):
        return pd.DataFrame([(row["qid"], row["docno"], 1) for row in self.rows], columns=["qid", "docno", "label"])

    def extract(self, dataset):
        return iter(self.rows)


def concept_set(triplets):
    clean = [tuple(" ".join(p.lower().split()) for p in triplet) for triplet in triplets]
    entities = {("entity", p) for s, _, o in clean for p in (s, o)}
    return {(k, p) for k, p in entities | {("relation", r) for _, r, _ in clean} if p}


@settings(max_examples=60, deadline=None)
@given(
    images=IMAGES,
    min_df=st.integers(1, 3),
    max_df=st.sampled_from([0.5, 0.9, 1.0]),
    other=st.lists(TRIPLETS, max_size=4),
)
def test_against_sets(images, min_df, max_df, other):
    rows = Rows(images)
    text_sets = {row["qid"]: concept_set(row["triplets"]) for row in rows.rows}
    image_sets = defaultdict(set)
    for row in rows.rows:
        image_sets[row["docno"]] |= text_sets[row["qid"]]
    df = {c: sum(c in s for s in image_sets.values()) for s in image_sets.values() for c in s}
    kept = sorted((c for c in df if min_df <= df[c] <= max_df * len(images)), key=lambda c: (c[0], -df[c], c[1]))
    if not kept:
        return

    with TemporaryDirectory() as folder:
        built = ConceptSpace.build(rows, rows, Path(folder) / "space", min_df=min_df, max_df=max_df, verbose=False)
        for space in (built, ConceptSpace.load(Path(folder) / "space")):
            assert [(c.kind, c.name) for c in space.concepts] == kept
            assert space.df.tolist() == [df[c] for c in kept]
            assert space.text_df.tolist() == [sum(c in s for s in text_sets.values()) for c in kept]
            for labels, sets in (
                (space.text_labels(text_sets), list(text_sets.values())),
                (space.image_labels(image_sets), list(image_sets.values())),
                (space.labels(other), [concept_set(t) for t in other]),
            ):
                expected = np.array([[c in s for c in kept] for s in sets], np.float32).reshape(len(sets), len(kept))
                assert labels.dtype == np.float32 and labels.has_canonical_format
                assert np.array_equal(labels.toarray(), expected)
