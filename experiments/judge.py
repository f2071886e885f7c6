"""MLLM-as-a-judge: which of two systems has the better first image, in the eyes of a chat model.

``python -m experiments.judge --dataset irds:flickr30k/test --runs grasp.res.gz dense.res.gz --dry-run`` says what it
will cost; without ``--dry-run`` it asks, and goes on where it stopped when it is run again. Runs are files that
``pt.io.write_results`` wrote. ``--preset tiny`` compares fused and dense retrieval of a model trained for a minute on
scenes; where no ``--base-url`` is given, by a server on loopback that prefers the brighter image: it shows the
machinery, nothing else.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

import pyterrier_grasp as ptg
from experiments.chat_server import RunningServer
from experiments.compare import Splits
from experiments.report import Report, parser
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.evaluation import estimate_judging, judge

TINY_QUERIES = 200


def main(argv: list[str] | None = None) -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "judge")
    arguments.add_argument("--dataset", help="the split that the runs are of, such as irds:flickr30k/test")
    arguments.add_argument(
        "--data", type=Path, help="instead: a folder with dataset_*.json and images/; its test split"
    )
    arguments.add_argument("--runs", type=Path, nargs=2, metavar=("A", "B"), help="result files of the two systems")
    arguments.add_argument("--preset", choices=("tiny",), help="scenes, with systems of its own")
    arguments.add_argument("--model", help="chat model that takes images (default: gpt-4o-mini)")
    arguments.add_argument("--base-url", help="endpoint of the chat model (default: OPENAI_BASE_URL, or OpenAI)")
    arguments.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    arguments.add_argument("--concurrency", type=int, default=16, help="requests at a time (%(default)s)")
    arguments.add_argument("--max-cost", type=float, help="US dollars after which to stop")
    arguments.add_argument("--batch", action="store_true", help="use the Batch API: half the price, within 24 hours")
    arguments.add_argument("--answers", type=Path, help="file of kept answers (default: under PyTerrier's home)")
    arguments.add_argument("--dry-run", action="store_true", help="only say what it would take")
    args = arguments.parse_args(argv)
    try:
        run(args)
    except (ValueError, KeyError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")


def run(args: argparse.Namespace) -> None:
    """Do what the arguments say."""
    report = Report(args)
    if args.preset == "tiny":
        dataset, topics, results = tiny(args)
        if args.base_url is None and not args.dry_run:
            args.model = "the-brighter-image"
            with RunningServer() as server:
                compare(args, report, results, topics, dataset, server.url)
            return
    else:
        dataset = open_dataset(args)
        if args.runs is None:
            raise ValueError("give --runs A B, two result files, or --preset tiny")
        for path in args.runs:
            if not path.is_file():
                raise FileNotFoundError(f"there is no run file {path}")
        topics, results = dataset.get_topics(), [pt.io.read_results(str(path)) for path in args.runs]
    compare(args, report, results, topics, dataset, args.base_url)


def compare(
    args: argparse.Namespace,
    report: Report,
    results: list[pd.DataFrame],
    topics: pd.DataFrame,
    dataset: Any,
    base_url: str | None,
) -> None:
    """Ask, and print what was said."""
    client = {"base_url": base_url, "concurrency": args.concurrency, "max_cost": args.max_cost, "batch": args.batch}
    options: dict[str, Any] = {"model": args.model, "repeats": args.repeats, "cache": args.answers, **client}
    if args.dry_run:
        print(estimate_judging(results[0], results[1], topics, dataset, **options))
        return
    judgement = judge(results[0], results[1], topics, dataset, **options)
    judgement.verdicts.to_csv(report.out / "verdicts.csv", index=False)
    summary = judgement.summary()
    report.add("summary", summary)
    report.add("usage", judgement.usage._asdict())
    print(shown(summary))
    for qid, failure in list(judgement.failures.items())[:5]:
        print(f"no verdict on {qid}: {failure}")
    report.step(f"done; every verdict is in {report.out / 'verdicts.csv'}")


def shown(summary: dict[str, Any]) -> str:
    """The summary as text."""
    lines = [
        f"{summary['queries']:,} queries: {100 * summary['agreement']:.1f} % have the same first image in both "
        f"systems; {summary['judged']:,} were judged, {summary['repeats']} times, by {summary['model']}"
    ]
    for name, words in (("win", "A wins"), ("lose", "B wins"), ("tie", "tie"), ("margin", "A - B")):
        spread = summary[f"{name}_std"]
        lines.append(f"{words:8}{100 * summary[name]:6.1f} %" + (f" ± {100 * spread:.1f}" if spread == spread else ""))
    lines.append(f"the order of the images changed {100 * summary['order_changes_verdict']:.1f} % of the verdicts")
    if summary["failed"]:
        lines.append(f"{summary['failed']:,} queries have no verdict in some repeat")
    return "\n".join(lines)


def open_dataset(args: argparse.Namespace) -> Any:
    """The dataset that the arguments name."""
    if (args.dataset is None) == (args.data is None):
        raise ValueError("give --dataset, or --data with a folder of your own")
    if args.data is None:
        return pt.get_dataset(args.dataset)
    annotations = next(iter(sorted(args.data.glob("dataset_*.json"))), None)
    if annotations is None:
        raise FileNotFoundError(f"{args.data} holds no dataset_*.json")
    ptg.datasets.local("photos", annotations=annotations, images=args.data / "images")
    return pt.get_dataset("irds:photos/test")


def tiny(args: argparse.Namespace) -> tuple[Any, pd.DataFrame, list[pd.DataFrame]]:
    """scenes/test, some of its captions, and the results of dense and fused retrieval by a quickly trained model."""
    splits = Splits(*(pt.get_dataset(f"irds:scenes/{split}") for split in ("train", "val", "test")))
    triplets = args.out / "triplets.jsonl"
    scenes.write_triplets(triplets, ["train", "val"])
    space = ptg.ConceptSpace.build(
        splits.train, ptg.TripletFile(triplets), args.out / "space", max_df=0.5, overwrite=True, verbose=False
    )
    trainer = ptg.GraspTrainer(
        ptg.Backbone.load("scenes"),
        space,
        options={"token_source": "hidden"},
        epochs=1,
        learning_rate=1e-3,
        seed=args.seed,
        cache_dir=args.cache,
        verbose=False,
    )
    model = trainer.fit(*splits.fit_arguments()).model
    if model is None:
        raise RuntimeError("the trainer returned no model")
    index = ptg.GraspIndex(args.out / f"{model.fingerprint}.index", verbose=False)
    if not index.built():
        (model.doc_encoder() >> index).index(index.missing(splits.test.get_corpus_iter(verbose=False)))
    topics = splits.test.get_topics().head(TINY_QUERIES)
    encode = model.query_encoder()
    return splits.test, topics, [(encode >> system)(topics) for system in (index.fused(w=0.5), index.dense())]


if __name__ == "__main__":
    main()
