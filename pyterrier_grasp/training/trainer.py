"""GraspTrainer: the PyTerrier Estimator that trains a method over a frozen backbone."""

import inspect
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import torch
from accelerate import PartialState
from transformers import EarlyStoppingCallback, TrainingArguments, set_seed

from pyterrier_grasp.backbones import Backbone, LiveStates, TokenSpace, TokenStateCache
from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.methods import DualEncoder, Space, load_method
from pyterrier_grasp.model import GraspModel
from pyterrier_grasp.training.loop import Loop
from pyterrier_grasp.training.module import TrainingModule
from pyterrier_grasp.training.pairs import (
    Corpus,
    Labels,
    PairCollator,
    PairDataset,
    Pairs,
    cache_folder,
    collect_paths,
    make_labels,
    make_pairs,
    relevant_pairs,
)
from pyterrier_grasp.training.validation import Validation


class GraspTrainer(pt.Estimator):
    """Trains projections, temperature and concept head on cached token states; leaves a :class:`GraspModel`.

    ``fit`` returns self with ``.model`` and ``.history``. As a transformer it is the fitted model's query encoder.
    Several GPUs or machines: start the script with ``accelerate launch``; ``batch_size`` is the global one.

    Args:
        backbone: The frozen backbone.
        space: The concept space, or for a token-space method a :class:`TokenSpace` (None: its text tower's whole
            vocabulary); None for ``method="dense"``.
        method: ``grasp``, ``dense``, or a token-space baseline: ``stair``, ``d2s``, ``sdlbt``, ``visualsparta``,
            ``lexlip``.
        options: Options of the method over its defaults, see the class of that name in ``pyterrier_grasp.methods``.
        corpus: Datasets (or iterables of ``{docno, path}``) that hold the images; may be given to ``fit`` instead.
        init: Start from the projections and temperature (and the head, where it fits) of this model, instead of the
            backbone's.
        epochs: Most passes over the training pairs; the paper's 200.
        max_steps: Exactly this many steps instead of ``epochs``; None for ``epochs``.
        batch_size: Pairs a step, over all processes; the paper's 256.
        learning_rate: Of projections and temperature; None takes the method's.
        head_learning_rate: Of the head; None takes the method's. See the README for why it has its own.
        weight_decay: Of weight matrices (not of biases and temperature).
        warmup: Share of the steps with rising learning rate; it falls linearly to 0 afterwards.
        gradient_clip: Largest norm of the gradient.
        patience: Epochs without a better validation score before stopping; None never stops early.
        tune_w: Choose ``w`` on validation too; the model keeps it as ``model.w``.
        precision: ``fp32``, ``bf16`` or ``fp16`` autocast.
        seed: Of the head's initial weights and the order of pairs.
        device: ``cpu``, ``cuda`` or None for what is there.
        cache_dir: Folder for token states; None for one under PyTerrier's home.
        cache_states: False keeps no token states: nothing is written, and every epoch runs the frozen encoders again.
        output_dir: Folder for checkpoints; None for a temporary one.
        resume: Go on from the last checkpoint in ``output_dir``, if there is one.
        verbose: Show progress bars and each epoch's metrics.
    """

    def __init__(
        self,
        backbone: Backbone,
        space: Space | None = None,
        *,
        method: str = "grasp",
        options: dict[str, Any] | None = None,
        corpus: Corpus | list[Corpus] | None = None,
        init: GraspModel | None = None,
        epochs: int = 200,
        max_steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float | None = None,
        head_learning_rate: float | None = None,
        weight_decay: float = 0.05,
        warmup: float = 0.2,
        gradient_clip: float = 1.0,
        patience: int | None = 20,
        tune_w: bool = False,
        precision: str = "fp32",
        seed: int = 42,
        device: str | None = None,
        cache_dir: str | Path | None = None,
        cache_states: bool = True,
        output_dir: str | Path | None = None,
        resume: bool = False,
        verbose: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(backbone, Backbone):
            raise ValueError(f"backbone is {backbone!r}; open it first: Backbone.load({backbone!r})")
        if space is not None and not isinstance(space, ConceptSpace | TokenSpace):
            raise ValueError(f"space is {space!r}; open it first: ConceptSpace.load({space!r})")
        self._method = load_method(method, options)
        learning_rate = self._method.learning_rate if learning_rate is None else learning_rate
        head_learning_rate = self._method.head_learning_rate if head_learning_rate is None else head_learning_rate
        for name, number in (("epochs", epochs), ("max_steps", max_steps), ("batch_size", batch_size)):
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}; it must be at least 1")
        for name, rate in (("learning_rate", learning_rate), ("head_learning_rate", head_learning_rate)):
            if not 0 <= rate < math.inf:
                raise ValueError(f"{name} is {rate}; it must be a finite number of at least 0")
        if device not in (None, "cpu", "cuda"):
            raise ValueError(f"device is {device!r}; choose cpu, cuda or None for what is there")
        if precision not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"precision is {precision!r}; choose fp32, bf16 or fp16")
        if resume and output_dir is None:
            raise ValueError("resume=True needs output_dir, the folder with the checkpoints")
        self.backbone = backbone
        self.space = space
        self.method = method
        self.options = options
        self.corpus = corpus
        self.init = init
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.gradient_clip = gradient_clip
        self.patience = patience
        self.tune_w = tune_w
        self.precision = precision
        self.seed = seed
        self.device = device
        self.cache_dir = cache_dir
        self.cache_states = cache_states
        self.output_dir = output_dir
        self.resume = resume
        self.verbose = verbose
        self._space = self._method.space_for(backbone, space)
        self.model: GraspModel | None = None
        self.history: list[dict[str, float]] = []

    def __repr__(self) -> str:
        state = "unfitted" if self.model is None else self.model.fingerprint
        return f"GraspTrainer({self.method}, {state})"

    # -- PyTerrier ---------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Encode queries with the fitted model.

        Raises:
            ValueError: Before ``fit``, unless ``inp`` has no rows.
        """
        pt.validate.columns(inp, includes=["query"], context=self)
        if self.model is not None:
            return self.model.query_encoder().transform(inp)
        if len(inp) > 0:
            raise ValueError("this GraspTrainer has no model yet; call fit(topics, qrels, ...) first")
        columns = ["query_vec", *(["query_toks"] if self._space is not None else []), "query_model"]
        return inp.assign(**{column: pd.Series(index=inp.index, dtype=object) for column in columns})

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        """How PyTerrier draws it."""
        return {"label": "GRASP Trainer", "help_url": None}

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
        corpus: Corpus | list[Corpus] | None = None,
    ) -> "GraspTrainer":
        """Train.

        With a validation split, every epoch is scored (D, S and D+S, over the images that the validation qrels name)
        and the best one by R@1 is kept: of D+S with the chosen ``w`` (``tune_w``), else of what the method selects by
        (``select_by``: D+S for GRASP, S for most baselines). Without validation it is the last.

        Args:
            topics_or_res_tr: Training captions, ``qid, query``.
            qrels_tr: Which image each belongs to, ``qid, docno, label``.
            topics_or_res_va: Validation captions.
            qrels_va: Their images.
            corpus: Datasets that hold the images of both, or an iterable of dicts ``{docno, path}``.

        Returns:
            self, with ``model`` (a :class:`GraspModel`) and ``history`` (a dict of metrics an epoch).

        Raises:
            ValueError: If frames lack columns, an image is in no corpus, or a topic has no relevant image.
            KeyError: If a caption is not one the concept space was built from.
            FloatingPointError: If the training diverged and left weights that are not numbers.
        """
        if (topics_or_res_va is None) != (qrels_va is None):
            raise ValueError("validation needs both topics and qrels; one of them is None")
        checkpoint = self._checkpoint()
        train_pairs = relevant_pairs(topics_or_res_tr, qrels_tr)
        valid_pairs = None
        if topics_or_res_va is not None and qrels_va is not None:
            valid_pairs = relevant_pairs(topics_or_res_va, qrels_va)
        docnos = pd.concat([train_pairs, valid_pairs])["docno"].unique()
        paths = collect_paths(corpus if corpus is not None else self.corpus, docnos)
        set_seed(self.seed)
        with tempfile.TemporaryDirectory(prefix="grasp-") as scratch:
            args = self._arguments(self.output_dir or scratch, validate=valid_pairs is not None)
            self.backbone.to(args.device)
            cache = self._cache()
            with PartialState().main_process_first():
                train = make_pairs(train_pairs, paths, cache, verbose=self.verbose)
                valid = None
                if valid_pairs is not None:
                    valid = make_pairs(valid_pairs, paths, cache, verbose=self.verbose)
            args.dataloader_drop_last = len(train) >= self.batch_size
            encoder = self._initial_encoder()
            loop = Loop(
                model=TrainingModule(encoder, self._method),
                args=args,
                train_dataset=PairDataset(train),
                data_collator=PairCollator(train, self._labels(train)),
                validation=None if valid is None else self._validation(valid),
                head_learning_rate=self.head_learning_rate,
                callbacks=[EarlyStoppingCallback(self.patience)] if valid is not None and self.patience else [],
            )
            loop.train(resume_from_checkpoint=checkpoint)
            if not all(parameter.isfinite().all() for parameter in encoder.parameters()):
                raise FloatingPointError(
                    f"the training diverged: weights are not finite. Lower learning_rate ({self.learning_rate:g}) or "
                    f"head_learning_rate ({self.head_learning_rate:g})"
                )
            self.history = [entry for entry in loop.state.log_history if "eval_D_R@1" in entry]
        best = self.validation_scores()
        self.model = GraspModel(
            self.backbone,
            self._method,
            encoder,
            self._space,
            w=best.get("w", self._method.official_w(encoder.tau().item())),
            metrics={"validation": best, "steps": loop.state.global_step, "seed": self.seed},
        )
        return self

    # -- pieces ------------------------------------------------------------------------------------------------

    def clone(self, **changes: Any) -> "GraspTrainer":
        """An unfitted trainer with the same arguments but for ``changes``."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        arguments = {name: getattr(self, name) for name in names} | changes
        return GraspTrainer(arguments.pop("backbone"), arguments.pop("space"), **arguments)

    def _cache(self) -> TokenStateCache | LiveStates:
        if not self.cache_states:
            return LiveStates(self.backbone)
        return TokenStateCache(cache_folder(self.cache_dir), self.backbone)

    def _labels(self, pairs: Pairs) -> Labels:
        return make_labels(pairs, self._space, self.backbone) if self._method.needs_labels else Labels()

    def _validation(self, pairs: Pairs) -> Validation:
        own = None
        if self._method.needs_own_tokens:
            own = make_labels(pairs, self._space, self.backbone).texts
        return Validation(pairs, self._method, own=own, tune_w=self.tune_w)

    def _initial_encoder(self) -> DualEncoder:
        encoder = self._method.build(self.backbone, self._space, self.seed)
        if self.init is not None:
            if self.init.backbone.fingerprint != self.backbone.fingerprint:
                raise ValueError(f"init is {self.init!r}, trained on another backbone than {self.backbone.source}")
            own, given = encoder.state_dict(), self.init.encoder.state_dict()
            same_space = self._space is not None and self._space == self.init.space
            for name, tensor in given.items():
                if name in own and own[name].shape == tensor.shape and (same_space or not name.startswith("heads.")):
                    own[name] = tensor
            encoder.load_state_dict(own)
        return encoder

    def _checkpoint(self) -> str | None:
        """The last whole checkpoint to go on from; the trainer state is what a checkpoint gets last."""
        if self.output_dir is None:
            return None
        whole = [path.parent for path in Path(self.output_dir).glob("checkpoint-*/trainer_state.json")]
        if whole and not self.resume:
            raise ValueError(
                f"{self.output_dir} holds checkpoints of an earlier training; give resume=True to go on from them, or "
                "another output_dir"
            )
        return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]))) if whole else None

    def validation_scores(self) -> dict[str, float]:
        """Validation metrics of the epoch that was kept, by name; empty without a validation split."""
        if not self.history:
            return {}
        best = max(self.history, key=lambda entry: entry[f"eval_{self.selection_metric}"])
        scores = {key.removeprefix("eval_"): value for key, value in best.items() if key.startswith("eval_")}
        return scores | {"epoch": best["epoch"]}

    @property
    def selection_metric(self) -> str:
        """The validation metric that picks the epoch, such as ``S_R@1``."""
        if self._space is None:
            return "D_R@1"
        return "D+S_w_R@1" if self.tune_w else f"{self._method.select_by}_R@1"

    def _arguments(self, folder: str | Path, *, validate: bool) -> TrainingArguments:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if self.batch_size % world:
            raise ValueError(f"batch_size {self.batch_size} cannot be split over {world} processes")
        args = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=self.batch_size // world,
            num_train_epochs=self.epochs,
            max_steps=self.max_steps or -1,
            learning_rate=self.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=self.warmup,
            weight_decay=self.weight_decay,
            max_grad_norm=self.gradient_clip,
            bf16=self.precision == "bf16",
            fp16=self.precision == "fp16",
            use_cpu=self.device == "cpu",
            seed=self.seed,
            eval_strategy="epoch" if validate else "no",
            save_strategy="epoch" if validate or self.output_dir else "no",
            logging_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=validate,
            metric_for_best_model=self.selection_metric if validate else None,
            greater_is_better=True if validate else None,
            dataloader_pin_memory=self.cache_states and self.device != "cpu" and torch.cuda.is_available(),
            disable_tqdm=not self.verbose,
            remove_unused_columns=False,
            report_to="none",
            ddp_find_unused_parameters=not self._method.uses_all_parameters,
        )
        # In one process use one GPU: DataParallel would compute a separate loss a device, without shared negatives.
        if world == 1 and args.n_gpu > 1:
            args._n_gpu = 1
        return args
