"""The paper's Table 2: what the concept space and its grounding are good for.

SDLBT on BERT tokens; SDLBT on the concept space, which is GRASP's space without grounding; GRASP on entities alone;
GRASP. Cells are those of ``table1`` where ``--out`` and the settings are the same.
"""

from experiments import cells, tables
from experiments.arguments import add_arguments, parse
from experiments.corpora import Corpus
from experiments.corpora import add_arguments as add_corpus
from experiments.protocol import SCORES, Protocol
from experiments.report import Report, parser
from experiments.rows import ROWS

TABLE2 = ("sdlbt", "sdlbt-concepts", "grasp-entities", "grasp")


def main(argv: list[str] | None = None) -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "tables", seeds=True)
    add_corpus(arguments)
    add_arguments(arguments)
    arguments.add_argument("--rows", nargs="+", choices=TABLE2, default=list(TABLE2), help="(%(default)s)")
    args = parse(arguments, argv)
    corpus = Corpus(args)
    report = Report(args, file="table2.json")
    if not args.only_table:
        cells.run(Protocol(args, corpus).cells(args.rows), report.step)
    for backbone in corpus.backbones:
        lines = []
        for row in args.rows:
            read = tables.read(args.out / "cells" / backbone / row / SCORES, row, ROWS[row].label, args.seeds)
            lines += [line for line in read if line.system != "D"]
        tables.test([line for line in lines if line.row == "grasp"], [line for line in lines if line.row != "grasp"])
        report.step(f"{corpus.name}, {backbone}")
        print(tables.write(lines, ("t2i",), args.out, f"table2-{backbone}", tables.notes(args.seeds)))
        report.add(backbone, tables.numbers(lines))


if __name__ == "__main__":
    main()
