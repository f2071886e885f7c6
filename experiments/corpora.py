"""What the tables train on, from the command line: splits, backbones and a concept space."""

import argparse
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pyterrier as pt
from filelock import FileLock

import pyterrier_grasp as ptg
from experiments.compare import Splits
from pyterrier_grasp.concepts import Extractor
from pyterrier_grasp.datasets import scenes

# "is" is in every image of scenes: it tells none apart.
SCENES_MAX_DF = 0.5


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The arguments that say what to train on."""
    group = arguments.add_argument_group("corpus")
    group.add_argument("--dataset", default=None, help="flickr30k, coco, flickr8k or scenes")
    group.add_argument("--backbone", nargs="+", default=None, help="folders, hub ids or checkpoint files; or scenes")
    group.add_argument("--data", type=Path, help="instead of --dataset: folder with images/ and dataset_*.json")
    group.add_argument("--states", type=Path, help="instead of --backbone: folder with states.npy, ids.txt, meta.json")
    group.add_argument("--text", help="with --states: folder or hub id of the text encoder")
    group.add_argument("--concepts", type=Path, help="a built concept space (default: built from --triplets)")
    group.add_argument("--triplets", type=Path, help="triplet file (default: triplets.jsonl.gz in --data)")
    group.add_argument("--descriptions", type=Path, help="a further text an image for training, as describe() writes")
    group.add_argument("--min-df", type=int, default=5, help="fewest training images of a concept (%(default)s)")


class Corpus:
    """Splits, backbones and concept space that the arguments name; opened when first asked for.

    Args:
        args: Of :func:`add_arguments`, with ``out``.

    Raises:
        SystemExit: If the arguments do not go together.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        if (args.data is None) == (args.dataset is None):
            raise SystemExit("give --dataset, or --data with a folder of your own")
        if (args.states is None) == (args.backbone is None):
            raise SystemExit("give --backbone, or --states and --text")
        if (args.states is None) != (args.text is None):
            raise SystemExit("--states and --text go together")
        if args.data is not None:
            annotations = next(iter(sorted(args.data.glob("dataset_*.json"))), None)
            if annotations is None:
                raise SystemExit(f"{args.data} holds no dataset_*.json")
            ptg.datasets.local("photos", annotations=annotations, images=args.data / "images")
        self.name = args.dataset or "photos"
        names = ["states"] if args.backbone is None else [Path(source).stem for source in args.backbone]
        if len(set(names)) < len(names):
            raise SystemExit(f"two of the backbones are called {max(names, key=names.count)}")
        self.backbones: dict[str, Callable[[], ptg.Backbone]] = dict(zip(names, self._openers(), strict=True))

    def _openers(self) -> list[Callable[[], ptg.Backbone]]:
        if self.args.backbone is None:
            return [lambda: ptg.Backbone.load(self.args.states, text=self.args.text)]
        return [lambda source=source: ptg.Backbone.load(source) for source in self.args.backbone]  # type: ignore[misc]

    @cached_property
    def splits(self) -> Splits:
        """Text -> image."""
        train, val, test = (pt.get_dataset(f"irds:{self.name}/{split}") for split in ("train", "val", "test"))
        if self.args.descriptions is not None:
            train = ptg.DescribedDataset(train, self.args.descriptions)
        return Splits(train, val, test)

    def reverse_qrels(self, split: str) -> Any:
        """Judgements of a split, image -> text."""
        return pt.get_dataset(f"irds:{self.name}/{split}/i2t").get_qrels()

    @cached_property
    def space(self) -> ptg.ConceptSpace:
        """The concept space: the one given, or built from the triplets."""
        return self._space()

    @cached_property
    def entities(self) -> ptg.ConceptSpace:
        """The same without relations."""
        named = zip(self.space.names, self.space.kinds, strict=True)
        return self.space.edit(drop=[name for name, kind in named if kind != "entity"])

    def _space(self) -> ptg.ConceptSpace:
        if self.args.concepts is not None:
            return ptg.ConceptSpace.load(self.args.concepts)
        options: dict[str, Any] = {"min_df": self.args.min_df, "verbose": False}
        if self.name == "scenes":
            options["max_df"] = SCENES_MAX_DF
        folder: Path = self.args.out / "space"
        folder.parent.mkdir(parents=True, exist_ok=True)
        # one process builds it, the others wait and open it
        with FileLock(folder.with_name(".space.lock")):
            return ptg.ConceptSpace.build(self.splits.train, self._extractor(), folder, **options)

    def _extractor(self) -> Extractor:
        path = self.args.triplets
        if path is None and self.name == "scenes":
            path = self.args.out / "triplets.jsonl"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                scenes.write_triplets(path, ["train", "val"])
        if path is None and self.args.data is not None:
            path = self.args.data / "triplets.jsonl.gz"
        if path is None:
            raise SystemExit("give --concepts with a built space (see experiments.concepts), or --triplets with a file")
        return ptg.TripletFile(path)
