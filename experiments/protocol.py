"""The protocol of the tables: one start, learning rates from a grid on validation, the same steps for every row."""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

import pyterrier_grasp as ptg
from experiments.arguments import parse_options
from experiments.cells import Cell
from experiments.corpora import Corpus
from experiments.report import versions
from experiments.rows import ROWS
from experiments.scoring import SYSTEMS, choose_w, evaluate
from pyterrier_grasp.backbones import LiveStates
from pyterrier_grasp.methods import Method, load_method
from pyterrier_grasp.training.pairs import cache_folder

START_RATE = 1e-3
# Folder of a row's figures on test, apart from its trainings: they can be made anew.
SCORES = "scores"


class Protocol:
    """Cells of the rows asked for.

    Args:
        args: Of ``add_arguments`` of ``arguments`` and of ``corpora``, with ``out``, ``cache`` and ``seeds``.
        corpus: What to train on.
    """

    def __init__(self, args: argparse.Namespace, corpus: Corpus) -> None:
        self.args = args
        self.corpus = corpus
        self.backbone = cache(self._backbone)
        self.space = cache(self._space)

    def folder(self, backbone: str, row: str, seed: int) -> Path:
        """Where a row's training is."""
        folder: Path = self.args.out / "cells" / backbone / row / str(seed)
        return folder

    def scores_folder(self, backbone: str, row: str, seed: int) -> Path:
        """Where a row's figures on test are."""
        return self.folder(backbone, row, seed).parent / SCORES / str(seed)

    def cells(self, rows: Iterable[str]) -> list[Cell]:
        """Every start, grid, training and scoring of the rows, for all backbones and seeds.

        With ``--no-training``, only the scoring of what is trained.
        """
        cells = []
        for backbone in self.corpus.backbones:
            starts = {seed: self._start(backbone, seed) for seed in self.args.seeds}
            cells += [start for start in starts.values() if start is not None]
            trainings: dict[tuple[str, int], Cell] = {}
            for row in rows:
                base = ROWS[row].of or row
                if (base, self.args.seeds[0]) not in trainings:
                    rates = self._rates(backbone, base, starts[self.args.seeds[0]])
                    for seed in self.args.seeds:
                        trainings[base, seed] = self._training(backbone, base, seed, rates, starts[seed])
                    cells += [rates, *(trainings[base, seed] for seed in self.args.seeds)]
                cells += [self._scoring(backbone, row, seed, trainings[base, seed]) for seed in self.args.seeds]
        if self.args.no_training:
            return [cell for cell in cells if cell.folder.parent.name == SCORES and all(n.done() for n in cell.needs)]
        return cells

    # -- the four kinds of cells ------------------------------------------------------------------------------

    def _start(self, backbone: str, seed: int) -> Cell | None:
        """Dense training of fresh projections, for backbones whose two towers do not know each other."""
        if not self.args.start_epochs:
            return None

        def work(folder: Path) -> None:
            trainer = ptg.GraspTrainer(
                self.backbone(backbone),
                method="dense",
                epochs=self.args.start_epochs,
                learning_rate=START_RATE,
                patience=None,
                **self._common(seed),
            )
            model = trainer.fit(*self.corpus.splits.fit_arguments()).model
            if model is not None:
                model.save(folder / "model")

        settings = self._settings(backbone) | {"seed": seed, "start_epochs": self.args.start_epochs}
        return Cell(self.args.out / "cells" / backbone / "start" / str(seed), settings, work)

    def _rates(self, backbone: str, row: str, start: Cell | None) -> Cell:
        """The head's rate at the method's own rate for projections, then the projections' at that."""
        args, method = self.args, load_method(ROWS[row].method)
        seed = args.seeds[0]
        grids = {"head_learning_rate": args.head_learning_rates, "learning_rate": args.learning_rates}
        if ROWS[row].space is None:
            del grids["head_learning_rate"]

        def work(folder: Path) -> None:
            tried: dict[tuple[float, float], dict[str, float]] = {}
            chosen = {"learning_rate": method.learning_rate, "head_learning_rate": method.head_learning_rate}
            if method.learning_rate not in args.learning_rates:
                chosen["learning_rate"] = sorted(args.learning_rates)[len(args.learning_rates) // 2]
            for name, grid in grids.items():
                if len(grid) == 1:
                    chosen[name] = grid[0]
                    continue
                selected = {}
                for rate in grid:
                    run = chosen | {name: rate}
                    key = (run["learning_rate"], run["head_learning_rate"])
                    if key not in tried:
                        trainer = self._trainer(backbone, row, seed, start, run, max_steps=args.grid_steps)
                        tried[key] = run | self._try(trainer)
                    selected[rate] = tried[key]["selected"]
                chosen[name] = max(selected, key=selected.__getitem__)
                if selected[chosen[name]] < 0:
                    raise FloatingPointError(f"{row} diverged at every {name} of {grid}; give lower ones")
            pd.DataFrame(tried.values()).to_csv(folder / "grid.csv", index=False)
            (folder / "rates.json").write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")

        settings = self._settings(backbone, row) | grids | {"seed": seed, "grid_steps": args.grid_steps}
        folder = args.out / "cells" / backbone / row / "rates"
        return Cell(folder, settings, work, [] if start is None else [start], self._defaults(row))

    def _try(self, trainer: ptg.GraspTrainer) -> dict[str, float]:
        """Validation figures of a short run, and the one that selects."""
        try:
            trainer.fit(*self.corpus.splits.fit_arguments())
        except FloatingPointError:
            return {"selected": -1.0}
        scores = trainer.validation_scores()
        return scores | {"selected": scores[trainer.selection_metric]}

    def _training(self, backbone: str, row: str, seed: int, rates: Cell, start: Cell | None) -> Cell:
        args = self.args

        def work(folder: Path) -> None:
            began = time.perf_counter()
            chosen = json.loads((rates.folder / "rates.json").read_text(encoding="utf-8"))
            trainer = self._trainer(
                backbone, row, seed, start, chosen, epochs=args.epochs, patience=args.patience or None
            )
            model = trainer.fit(*self.corpus.splits.fit_arguments()).model
            if model is None:
                raise RuntimeError("the trainer returned no model")
            if model.has_concepts:
                model.w = choose_w(model, self.corpus.splits.val, self.states(model.backbone))["w"]
            figures = {"rates": chosen, "seconds": time.perf_counter() - began, "versions": versions()}
            figures["history"] = trainer.history
            model.save(folder / "model")
            (folder / "metrics.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

        def outdated(folder: Path) -> str | None:
            used = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["rates"]
            path = rates.folder / "rates.json"
            now = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else used
            return None if used == now else f"it was trained with {used}, and {rates.folder} has chosen {now} since"

        settings = self._settings(backbone, row) | {"seed": seed, "epochs": args.epochs, "patience": args.patience}
        needs = [rates] if start is None else [rates, start]
        return Cell(self.folder(backbone, row, seed), settings, work, needs, self._defaults(row), outdated)

    def _scoring(self, backbone: str, row: str, seed: int, training: Cell) -> Cell:
        trained = training.folder / "model"

        def work(folder: Path) -> None:
            model = ptg.GraspModel.load(trained, backbone=self.backbone(backbone))
            systems: tuple[str, ...] = SYSTEMS
            if ROWS[row].of is not None:
                # its dense branch is the trained row's, and no one has published a weight for it
                model, systems = model.with_options(**self._options(row)), ("S", "calibrated")
            self.write_scores(model, systems, folder, trained)

        settings = self._settings(backbone, row) | {"seed": seed}
        folder = self.scores_folder(backbone, row, seed)
        return Cell(folder, settings, work, [training], self._defaults(row), lambda at: _rescore(at, trained))

    # -- pieces ------------------------------------------------------------------------------------------------

    def write_scores(self, model: ptg.GraspModel, systems: tuple[str, ...], folder: Path, trained: Path) -> None:
        """Evaluate a model made from the one saved at ``trained``; write ``metrics.json`` and ``queries.csv.gz``."""
        figures, queries = evaluate(model, self.corpus, self.states(model.backbone), systems)
        figures |= {"model": saved_fingerprint(trained), "versions": versions()}
        queries.to_csv(folder / "queries.csv.gz", index=False)
        (folder / "metrics.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    def _trainer(
        self, backbone: str, row: str, seed: int, start: Cell | None, rates: dict[str, float], **settings: Any
    ) -> ptg.GraspTrainer:
        opened = self.backbone(backbone)
        init = None if start is None else ptg.GraspModel.load(start.folder / "model", backbone=opened)
        settings = {"patience": None, **settings, **rates, **self._common(seed)}
        options = self._options(row)
        return ptg.GraspTrainer(
            opened, self.space(backbone, row), method=ROWS[row].method, options=options, init=init, **settings
        )

    def _common(self, seed: int) -> dict[str, Any]:
        args = self.args
        common = {"seed": seed, "batch_size": args.batch_size, "precision": args.precision, "verbose": False}
        return common | {"cache_dir": args.cache, "cache_states": not args.no_cache}

    def _options(self, row: str) -> dict[str, Any]:
        """Options of a row; those of one that scores with another's models come on top of that one's."""
        return ROWS[row].options | parse_options(self.args.option).get(row, {})

    def _method(self, row: str) -> Method:
        base = ROWS[row].of
        return load_method(ROWS[row].method, ({} if base is None else self._options(base)) | self._options(row))

    def _space(self, backbone: str, row: str) -> Any:
        kind = ROWS[row].space
        if kind is None:
            return None
        if kind in ("concepts", "entities"):
            return self.corpus.space if kind == "concepts" else self.corpus.entities
        space = ptg.TokenSpace.of(self.backbone(backbone))
        if kind == "positions" and self.args.tokens == "seen":
            captions = self.corpus.splits.train.get_topics()["query"]
            return space.seen_in(self.backbone(backbone), captions, min_texts=self.args.min_texts)
        return space

    def _settings(self, backbone: str, row: str | None = None) -> dict[str, Any]:
        settings = {
            "dataset": self.corpus.name,
            "backbone": self.backbone(backbone).fingerprint,
            "batch_size": self.args.batch_size,
            "precision": self.args.precision,
        }
        if self.args.descriptions is not None:
            settings["descriptions"] = hashlib.sha256(self.args.descriptions.read_bytes()).hexdigest()[:16]
        if row is None:
            return settings
        space = self.space(backbone, row)
        return settings | {
            "method": ROWS[row].method,
            "options": self._method(row).options(),
            "space": None if space is None else space.fingerprint,
            "start_epochs": self.args.start_epochs,
        }

    def _defaults(self, row: str) -> dict[str, dict[str, Any]]:
        """Options that a method did not have when a cell was made; a saved model is loaded with these too."""
        return {"options": load_method(ROWS[row].method).options()}

    def states(self, backbone: ptg.Backbone) -> ptg.TokenStateCache | LiveStates:
        """Token states of a backbone, cached or computed."""
        if self.args.no_cache:
            return LiveStates(backbone)
        return ptg.TokenStateCache(cache_folder(self.args.cache), backbone)

    def _backbone(self, name: str) -> ptg.Backbone:
        opener: Callable[[], ptg.Backbone] = self.corpus.backbones[name]
        return opener()


def saved_fingerprint(model: Path) -> str:
    """Fingerprint of a saved model."""
    return str(json.loads((model / "config.json").read_text(encoding="utf-8"))["fingerprint"])


def _rescore(folder: Path, trained: Path) -> str | None:
    """Say so if figures are of another model than the one that is there now."""
    was = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["model"]
    now = saved_fingerprint(trained)
    return None if was == now else f"it has the figures of model {was}, and {trained} is {now}"
