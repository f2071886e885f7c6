"""GraspTrainer as users meet it: fit, resume, seeds, errors, and its life in a pipeline."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from sklearn.metrics import average_precision_score

from pyterrier_grasp import GraspTrainer
from pyterrier_grasp.training import learning_rate_grid


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.encoder.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_training_grounds_the_concepts(fit, toy):
    settings = {"epochs": 30, "head_learning_rate": 0.1, "learning_rate": 3e-3, "patience": None}
    trainer = fit(options={"token_source": "hidden"}, **settings)
    model = trainer.model
    raw = model.encoder.encode(model.backbone.encode_text(toy.train.topics["query"].tolist()), "text").raw
    labels = toy.space.text_labels(toy.train.topics["qid"]).toarray() > 0
    by_df = np.broadcast_to(toy.space.df.astype(float), labels.shape)
    learnt = average_precision_score(labels.ravel(), raw.detach().numpy().ravel())
    assert learnt > 2 * average_precision_score(labels.ravel(), by_df.ravel())
    assert len(trainer.history) == 30
    assert {"eval_D_R@1", "eval_S_R@1", "eval_D+S_R@1", "eval_text_active"} <= set(trainer.history[0])


def test_the_same_seed_gives_the_same_weights_and_another_does_not(fit):
    first, again, other = fit(), fit(), fit(seed=4)
    assert same(weights(first), weights(again))
    assert first.history == again.history
    assert not same(weights(first), weights(other))


def test_the_frozen_backbone_is_not_run_again(fit, toy_backbone, monkeypatch):
    fit()
    for name in ("encode_text", "encode_images"):
        monkeypatch.setattr(type(toy_backbone), name, lambda *args: pytest.fail("the frozen tower ran again"))
    fit(seed=5)


def test_tune_w_keeps_the_weight_that_is_best_on_validation(fit):
    trainer = fit(tune_w=True)
    scores = trainer.validation_scores()
    assert trainer.model.w == scores["w"] > 0
    assert scores["D+S_w_R@1"] >= scores["D+S_R@1"]
    assert trainer.model.metrics["validation"] == scores


def test_the_best_epoch_is_kept(fit):
    trainer = fit(epochs=4, learning_rate=3e-2)
    assert trainer.validation_scores()["D+S_R@1"] == max(entry["eval_D+S_R@1"] for entry in trainer.history)


def test_early_stopping_waits_for_patience_epochs(fit):
    trainer = fit(epochs=40, patience=2, learning_rate=0.0, head_learning_rate=0.0)
    assert len(trainer.history) == 3


def test_resume_equals_an_uninterrupted_run(fit, tmp_path):
    whole = fit(epochs=3, patience=None, output_dir=tmp_path / "whole")
    first = fit(epochs=3, patience=None, output_dir=tmp_path / "cut")
    last = max((tmp_path / "cut").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    # As if killed while the last checkpoint was written: its state, written last, is not there.
    (last / "trainer_state.json").unlink()
    resumed = fit(epochs=3, patience=None, output_dir=tmp_path / "cut", resume=True)
    assert same(weights(whole), weights(resumed))
    assert [e["eval_D_R@1"] for e in resumed.history] == [e["eval_D_R@1"] for e in first.history]


def test_earlier_checkpoints_are_not_mixed_in_unasked(fit, tmp_path):
    fit(epochs=1, output_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="resume=True"):
        fit(epochs=1, output_dir=tmp_path / "run")


def test_init_starts_from_another_models_projections(fit, toy_dense_model):
    trainer = fit(init=toy_dense_model, learning_rate=0.0, epochs=1)
    for name, tensor in toy_dense_model.encoder.state_dict().items():
        assert torch.equal(trainer.model.encoder.state_dict()[name], tensor)


def test_without_validation_the_last_epoch_is_kept(fit):
    trainer = fit(validate=False)
    assert trainer.history == [] and trainer.validation_scores() == {}
    assert trainer.model.metrics["steps"] == 12


@pytest.mark.parametrize(
    "options",
    [
        {"token_source": "hidden"},
        {"detach_grounding": True},
        {"normalise_tokens": True, "exclude_special": True},
        {"bce_input": "z", "bias_init": "idf"},
        {"bce_input": "prob", "bias_init": "zeros", "reduction": "mean"},
        {"similarity": "dot", "mask_same_image": True, "df_source": "both"},
        {"train_projections": False},
    ],
)
def test_every_reading_trains(fit, options):
    trainer = fit(options=options, epochs=1)
    assert all(torch.isfinite(tensor).all() for tensor in weights(trainer).values())


def test_detach_grounding_keeps_bce_from_the_projections(fit, toy_backbone):
    only_bce = {"contrastive": (), "distill": (), "grounding_weight": 1.0}
    start = toy_backbone.text_projection().weight
    moved = fit(options=only_bce, epochs=1, weight_decay=0.0).model
    kept = fit(options=only_bce | {"detach_grounding": True}, epochs=1, weight_decay=0.0).model
    assert not torch.equal(moved.encoder.projections["text"].weight, start)
    assert torch.equal(kept.encoder.projections["text"].weight, start)


def test_grid_returns_the_best_run_and_a_table(toy, toy_backbone, toy_cache):
    trainer = GraspTrainer(toy_backbone, method="dense", epochs=1, batch_size=20, cache_dir=toy_cache, verbose=False)
    best, table = learning_rate_grid(
        trainer,
        toy.train.topics,
        toy.train.qrels,
        toy.val.topics,
        toy.val.qrels,
        [toy.train, toy.val],
        learning_rates=(1e-5, 1e-2),
    )
    assert table["learning_rate"].tolist() == [1e-5, 1e-2]
    assert best.validation_scores()["D_R@1"] == table["D_R@1"].max()
    assert trainer.model is None


def test_a_diverged_training_is_an_error_and_loses_the_grid(toy, toy_backbone, toy_cache):
    trainer = GraspTrainer(
        toy_backbone, method="dense", epochs=1, batch_size=20, cache_dir=toy_cache, verbose=False, device="cpu"
    )
    frames = toy.train.topics, toy.train.qrels, toy.val.topics, toy.val.qrels, [toy.train, toy.val]
    with pytest.raises(FloatingPointError, match="diverged.*learning_rate"):
        trainer.clone(learning_rate=1e30).fit(*frames)
    best, table = learning_rate_grid(trainer, *frames, learning_rates=(1e30, 1e-3))
    assert best.learning_rate == 1e-3 and table["D_R@1"].isna().tolist() == [True, False]
    with pytest.raises(FloatingPointError, match="every rate"):
        learning_rate_grid(trainer, *frames, learning_rates=(1e30,))


# -- as a transformer ------------------------------------------------------------------------------------------


def unfitted(toy, toy_backbone):
    return GraspTrainer(toy_backbone, toy.space, verbose=False)


def test_unfitted_it_can_be_inspected_but_not_run(toy, toy_backbone):
    trainer = unfitted(toy, toy_backbone)
    assert pt.inspect.transformer_outputs(trainer, ["qid", "query"]) == [
        "qid",
        "query",
        "query_vec",
        "query_toks",
        "query_model",
    ]
    with pytest.raises(ValueError, match="call fit"):
        trainer.transform(toy.test.topics)


def test_unfitted_it_passes_pyterriers_own_contract(toy, toy_backbone, monkeypatch):
    monkeypatch.setenv("PT_TEST_TRANSFORMER_REPORTS", "0")
    case = pt.testing.transformer_test_class(lambda: unfitted(toy, toy_backbone))
    case.setUpClass()
    for test in ("test_inspect_io", "test_schematic"):
        result = case(test).run()
        assert result.wasSuccessful(), result.failures + result.errors


def test_fitted_it_is_the_query_encoder(fit, toy):
    trainer = fit()
    ours, expected = trainer(toy.test.topics), trainer.model.query_encoder()(toy.test.topics)
    pd.testing.assert_frame_equal(ours.drop(columns="query_vec"), expected.drop(columns="query_vec"))


def test_fit_in_a_compose_pipeline_uses_the_constructors_corpus(toy, toy_backbone, toy_cache):
    trainer = GraspTrainer(
        toy_backbone,
        toy.space,
        corpus=[toy.train, toy.val],
        epochs=1,
        batch_size=20,
        cache_dir=toy_cache,
        verbose=False,
    )
    pipeline = pt.Transformer.identity() >> trainer
    pipeline.fit(toy.train.topics, toy.train.qrels, toy.val.topics, toy.val.qrels)
    assert "query_toks" in pipeline(toy.test.topics.head(2)).columns


# -- bad input -------------------------------------------------------------------------------------------------


def fit_frames(toy, toy_backbone, toy_cache, topics=None, qrels=None, corpus="both"):
    corpus = [toy.train, toy.val] if corpus == "both" else corpus
    trainer = GraspTrainer(toy_backbone, toy.space, epochs=1, cache_dir=toy_cache, verbose=False)
    return trainer.fit(
        toy.train.topics if topics is None else topics, toy.train.qrels if qrels is None else qrels, corpus=corpus
    )


def test_missing_corpus_and_images_are_named(toy, toy_backbone, toy_cache):
    with pytest.raises(ValueError, match="no corpus"):
        fit_frames(toy, toy_backbone, toy_cache, corpus=None)
    with pytest.raises(ValueError, match="24 of 24 images in the qrels are not in the corpus"):
        fit_frames(toy, toy_backbone, toy_cache, corpus=[toy.val])
    with pytest.raises(ValueError, match="'text': 'a dog'.*docno and path"):
        fit_frames(toy, toy_backbone, toy_cache, corpus=[{"docno": "1", "text": "a dog"}])


def test_missing_columns_and_unlabelled_topics_are_named(toy, toy_backbone, toy_cache):
    with pytest.raises(ValueError, match=r"topics lack the columns \['query'\]"):
        fit_frames(toy, toy_backbone, toy_cache, topics=toy.train.topics[["qid"]])
    with pytest.raises(ValueError, match="none of the 120 topics has a relevant image"):
        fit_frames(toy, toy_backbone, toy_cache, qrels=toy.val.qrels)
    with pytest.raises(ValueError, match="qids look like 0 and '0'"):
        numbers = range(len(toy.train.topics))
        topics = toy.train.topics.assign(qid=numbers)
        fit_frames(toy, toy_backbone, toy_cache, topics, toy.train.qrels.assign(qid=[str(n) for n in numbers]))


def test_a_corpus_may_be_an_iterator(toy, toy_backbone, toy_cache):
    docs = (doc for doc in [*toy.train.docs, *toy.val.docs])
    trainer = GraspTrainer(toy_backbone, toy.space, epochs=1, batch_size=20, cache_dir=toy_cache, verbose=False)
    trainer.fit(toy.train.topics, toy.train.qrels, toy.val.topics, toy.val.qrels, corpus=docs)
    assert trainer.model is not None


def test_captions_outside_the_space_are_named(toy, toy_backbone, toy_cache):
    with pytest.raises(KeyError, match="val-"):
        fit_frames(toy, toy_backbone, toy_cache, topics=toy.val.topics, qrels=toy.val.qrels)


def test_wrong_arguments_are_named(toy, toy_backbone):
    with pytest.raises(ValueError, match="needs a concept space"):
        GraspTrainer(toy_backbone)
    with pytest.raises(ValueError, match="precision is 'int8'"):
        GraspTrainer(toy_backbone, toy.space, precision="int8")
    with pytest.raises(ValueError, match=r"Backbone.load\('scenes'\)"):
        GraspTrainer("scenes", method="dense")
    with pytest.raises(ValueError, match="ConceptSpace.load"):
        GraspTrainer(toy_backbone, "scenes.concepts")
    for arguments in ({"epochs": 0}, {"max_steps": 0}, {"batch_size": 0}, {"device": "gpu"}):
        with pytest.raises(ValueError, match=f"{next(iter(arguments))} is"):
            GraspTrainer(toy_backbone, toy.space, **arguments)
    for rate in (-1e-3, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="head_learning_rate is"):
            GraspTrainer(toy_backbone, toy.space, head_learning_rate=rate)
    with pytest.raises(ValueError, match="resume=True needs output_dir"):
        GraspTrainer(toy_backbone, toy.space, resume=True)
    with pytest.raises(ValueError, match="needs both topics and qrels"):
        GraspTrainer(toy_backbone, toy.space).fit(toy.train.topics, toy.train.qrels, toy.val.topics, None)


def test_mixed_precision_trains(fit):
    trainer = fit(precision="bf16", epochs=1)
    assert np.isfinite(trainer.model.encoder.heads["shared"].weight.detach().numpy()).all()


def test_without_a_cache_the_training_is_the_same_and_nothing_is_stored(fit, toy, toy_backbone, tmp_path):
    trainer = GraspTrainer(
        toy_backbone,
        toy.space,
        epochs=1,
        batch_size=20,
        cache_dir=tmp_path / "cache",
        cache_states=False,
        seed=3,
        verbose=False,
    )
    trainer.fit(
        *(frame for part in (toy.train, toy.val) for frame in (part.topics, part.qrels)), corpus=[toy.train, toy.val]
    )
    assert not (tmp_path / "cache").exists()
    cached = trainer.clone(cache_states=True)
    cached.fit(
        *(frame for part in (toy.train, toy.val) for frame in (part.topics, part.qrels)), corpus=[toy.train, toy.val]
    )
    for name, tensor in weights(trainer).items():  # the cache rounds states to float16
        torch.testing.assert_close(tensor, weights(cached)[name], rtol=0.02, atol=2e-3)
