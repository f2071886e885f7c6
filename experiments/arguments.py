"""Arguments of the tables: how to train and evaluate."""

import argparse
from typing import Any

import torch

from experiments.rows import ROWS


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The arguments that say how to train and evaluate."""
    group = arguments.add_argument_group("protocol")
    group.add_argument("--preset", choices=("tiny",), help="scenes and its backbone, minutes in all")
    group.add_argument("--start-epochs", type=int, default=0, help="of a common dense start (%(default)s)")
    group.add_argument("--epochs", type=int, default=200, help="most epochs of every row (%(default)s)")
    group.add_argument("--patience", type=int, default=20, help="epochs without a better one; 0: never stop early")
    group.add_argument("--batch-size", type=int, default=256, help="(%(default)s)")
    for name, grid in (("--learning-rates", [1e-5, 1e-4, 1e-3]), ("--head-learning-rates", [1e-4, 1e-3, 1e-2])):
        group.add_argument(name, type=float, nargs="+", default=grid, help="grid (%(default)s)")
    group.add_argument("--grid-steps", type=int, default=500, help="of a run of the grid, first seed (%(default)s)")
    group.add_argument(
        "--tokens",
        choices=("all", "seen"),
        default="all",
        help="dimensions of heads over every position: the vocabulary, or tokens of --min-texts training captions",
    )
    group.add_argument("--min-texts", type=int, default=5, help="for --tokens seen (%(default)s)")
    group.add_argument(
        "--option", action="append", default=[], metavar="ROW.NAME=VALUE", help="option of a row's method"
    )
    group.add_argument("--no-cache", action="store_true", help="keep no token states on disk")
    group.add_argument("--precision", default="fp32", help="fp32, bf16 or fp16 (%(default)s)")
    group.add_argument("--no-training", action="store_true", help="evaluate what is trained, and show it")
    group.add_argument("--only-table", action="store_true", help="train and evaluate nothing, show what is there")
    group.add_argument("--threads", type=int, help="of torch")


TINY: dict[str, Any] = {
    "dataset": "scenes",
    "backbone": ["scenes"],
    "epochs": 2,
    "patience": 0,
    "learning_rates": [1e-3],
    "head_learning_rates": [1e-2],
    "seeds": [1, 2],
    "tokens": "seen",
    "option": ["grasp.token_source=hidden", "grasp-entities.token_source=hidden"],
}


def parse(arguments: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace:
    """Parse, with the preset's values as defaults."""
    preset = arguments.parse_known_args(argv)[0].preset
    if preset == "tiny":
        arguments.set_defaults(**TINY)
    args = arguments.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    return args


def parse_options(given: list[str]) -> dict[str, dict[str, Any]]:
    """``["grasp.w=0.3"]`` -> ``{"grasp": {"w": 0.3}}``.

    Raises:
        SystemExit: If one has another form or names no row.
    """
    options: dict[str, dict[str, Any]] = {}
    for text in given:
        row, dot, rest = text.partition(".")
        name, sign, value = rest.partition("=")
        if not dot or not sign or row not in ROWS:
            raise SystemExit(f"--option {text}: write ROW.NAME=VALUE, with a row of {', '.join(ROWS)}")
        options.setdefault(row, {})[name] = plain_value(value)
    return options


def plain_value(value: str) -> Any:
    """A number, a truth value, a tuple (with commas) or the text itself."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    if value in ("true", "false"):
        return value == "true"
    return tuple(filter(None, value.split(","))) if "," in value else value
