"""The protocol of the tables: one start, learning rates from a grid on validation, the same steps for every row."""

import argparse
import hashlib
import json
import time
from collections.abc import Callable
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
from experiments.scoring import NAMES, choose_w, measure, score
from pyterrier_grasp.backbones import LiveStates
from pyterrier_grasp.methods import load_method
from pyterrier_grasp.training.pairs import cache_folder

START_RATE = 1e-3


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
        """Where a row's cell is."""
        folder: Path = self.args.out / "cells" / backbone / row / str(seed)
        return folder

    def cells(self, rows: list[str]) -> list[Cell]:
        """Every start, grid and training of the rows, for all backbones and seeds."""
        cells = []
        for backbone in self.corpus.backbones:
            starts = {seed: self._start(backbone, seed) for seed in self.args.seeds}
            cells += [start for start in starts.values() if start is not None]
            for row in rows:
                rates = self._rates(backbone, row, starts[self.args.seeds[0]])
                cells.append(rates)
                cells += [self._training(backbone, row, seed, rates, starts[seed]) for seed in self.args.seeds]
        return cells

    # -- the three kinds of cells ------------------------------------------------------------------------------

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
            trained = time.perf_counter() - began
            figures: dict[str, Any] = {"rates": chosen, "seconds": trained, "versions": versions(), "systems": {}}
            figures["history"] = trainer.history
            figures["dimensions"] = 0 if model.space is None else len(model.space)
            queries: list[pd.DataFrame] = []
            for name, options in {"": {}, **ROWS[row].rescored}.items():
                scored = model.with_options(**options) if options else model
                self._evaluate(scored, name, figures, queries)
                if not options:
                    scored.w = figures["w"].get("calibrated", scored.w)
            pd.concat(queries).to_csv(folder / "queries.csv.gz", index=False)
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

    # -- pieces ------------------------------------------------------------------------------------------------

    def _evaluate(
        self, model: ptg.GraspModel, variant: str, figures: dict[str, Any], queries: list[pd.DataFrame]
    ) -> None:
        """Add a model's figures on test, in both directions, and its validation figures."""
        states = self.states(model.backbone)
        validation = choose_w(model, self.corpus.splits.val, states)
        prefix = f"{variant} " if variant else ""
        figures.setdefault("validation", {})[variant or model.method.name] = validation
        scored = score(model, self.corpus.splits.test, states)
        systems: dict[str, Any] = {} if variant else {"D": (scored.dense, None)}
        if scored.sparse is not None:
            weights = {"calibrated": validation["w"]}
            if not variant:
                weights["official"] = model.method.official_w(model.encoder.tau().item())
            figures.setdefault("w", {}).update({prefix + name: w for name, w in weights.items()})
            figures.setdefault("active", {})[variant] = scored.active
            systems["S"] = (scored.sparse, scored.sparse > 0)
            systems |= {name: (scored.dense + w * scored.sparse, None) for name, w in weights.items()}
        figures.setdefault("w", {})
        qrels = {"t2i": self.corpus.splits.test.get_qrels(), "i2t": self.corpus.reverse_qrels}
        for direction, judged in qrels.items():
            for system, (scores, retrieved) in systems.items():
                table = measure(scores, scored, judged, direction, retrieved=retrieved)
                name = prefix + system
                figures["systems"].setdefault(direction, {})[name] = {n: float(table[n].mean()) for n in NAMES}
                queries.append(table.reset_index().assign(direction=direction, system=name))

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
        return ROWS[row].options | parse_options(self.args.option).get(row, {})

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
            "options": load_method(ROWS[row].method, self._options(row)).options(),
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
