"""The paper's Table 1: every method on one backbone and dataset, under one protocol, with significance.

Each method is trained with each seed from the same start and for the same steps, its learning rates from a grid on
validation (first seed, short runs). Cells under ``--out`` are done once: stop it and run it again, or run it in several
processes at once.
"""

from experiments import cells, tables
from experiments.arguments import add_arguments, parse
from experiments.corpora import Corpus
from experiments.corpora import add_arguments as add_corpus
from experiments.protocol import SCORES, Protocol
from experiments.report import Report, parser
from experiments.rows import ROWS, TABLE1


def main(argv: list[str] | None = None) -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "tables", seeds=True)
    add_corpus(arguments)
    add_arguments(arguments)
    arguments.add_argument("--methods", nargs="+", choices=TABLE1, default=list(TABLE1), help="rows (%(default)s)")
    arguments.add_argument("--direction", choices=("t2i", "i2t", "both"), default="both", help="shown (%(default)s)")
    args = parse(arguments, argv)
    corpus = Corpus(args)
    protocol = Protocol(args, corpus)
    report = Report(args, file="table1.json")
    if not args.only_table:
        cells.run(protocol.cells(args.methods), report.step)
    notes = tables.notes(args.seeds)
    if args.tokens == "seen":
        notes += f" Heads over every position have the tokens of {args.min_texts} or more training captions."
    directions = ("t2i", "i2t") if args.direction == "both" else (args.direction,)
    for backbone in corpus.backbones:
        lines = []
        for row in args.methods:
            lines += tables.read(args.out / "cells" / backbone / row / SCORES, row, ROWS[row].label, args.seeds)
        own = [line for line in lines if ROWS[line.row].method == "grasp"]
        tables.test(own, [line for line in lines if ROWS[line.row].method != "grasp"])
        report.step(f"{corpus.name}, {backbone}")
        print(tables.write(lines, directions, args.out, f"table1-{backbone}", notes))
        report.add(backbone, tables.numbers(lines))


if __name__ == "__main__":
    main()
