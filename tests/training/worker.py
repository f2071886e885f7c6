"""One process of test_distributed.py: trains on the pickled toy corpus and saves the weights from rank 0."""

import os
import pickle
import sys

from safetensors.torch import save_file

from pyterrier_grasp import Backbone, ConceptSpace, GraspTrainer


def main(job: str, out: str) -> None:
    with open(job, "rb") as file:
        spec, space, topics, qrels, valid, docs, cache = pickle.load(file)
    trainer = GraspTrainer(
        Backbone.from_spec(spec, device="cpu"),
        ConceptSpace.load(space),
        epochs=2,
        batch_size=20,
        learning_rate=1e-3,
        seed=3,
        verbose=False,
        device="cpu",
        cache_dir=cache,
    )
    trainer.fit(topics, qrels, *valid, corpus=docs)
    if os.environ.get("RANK", "0") == "0":
        save_file(trainer.model.encoder.state_dict(), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
