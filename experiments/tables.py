"""From finished cells to a table: means over seeds, significance, CSV, Markdown and LaTeX."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel

from experiments.scoring import NAMES

LEVEL = 0.05
LABELS = {"D": "D", "S": "S", "official": "D+S, published scale", "calibrated": "D+S, w from val"}
DAGGER = "†"


@dataclass
class Line:
    """A line of a table: a system of a row, over all seeds that are there.

    Attributes:
        row: Key of the row.
        label: Its name.
        system: ``D``, ``S``, ``official`` or ``calibrated``.
        means: Direction -> a row a seed, a column a measure, in [0, 1].
        queries: Direction -> values of each query averaged over seeds, a row a query.
        weights: Direction -> ``w`` of each seed.
        active: Mean non-zero dimensions of texts and images, averaged over seeds.
        dimensions: Of the space.
        p_values: Direction -> measure -> p of the paired t-test against the best baseline; only where it was asked for.
        better: Direction -> measure -> whether the mean is above that baseline's.
        asked: How many seeds were asked for.
    """

    row: str
    label: str
    system: str
    means: dict[str, pd.DataFrame] = field(default_factory=dict)
    queries: dict[str, pd.DataFrame] = field(default_factory=dict)
    weights: dict[str, list[float]] = field(default_factory=dict)
    active: tuple[float, float] | None = None
    dimensions: int = 0
    p_values: dict[str, dict[str, float]] = field(default_factory=dict)
    better: dict[str, dict[str, bool]] = field(default_factory=dict)
    asked: int = 0

    @property
    def seeds(self) -> int:
        """How many seeds are there."""
        return max((len(table) for table in self.means.values()), default=0)


def read(folder: Path, row: str, label: str, seeds: Sequence[int]) -> list[Line]:
    """Lines of a row's finished cells.

    Args:
        folder: ``cells/<backbone>/<row>/scores``.
        row: Key of the row.
        label: Its name.
        seeds: Cells to look for; missing ones are left out.

    Returns:
        A line a system, without measures if no cell is done.
    """
    cells = {seed: folder / str(seed) for seed in seeds if (folder / str(seed) / "metrics.json").is_file()}
    if not cells:
        return [Line(row, label, "", asked=len(seeds))]
    metrics = {seed: json.loads((cell / "metrics.json").read_text(encoding="utf-8")) for seed, cell in cells.items()}
    queries = {seed: pd.read_csv(cell / "queries.csv.gz", dtype={"qid": str}) for seed, cell in cells.items()}
    first = next(iter(metrics.values()))
    lines = []
    for system in first["systems"]["t2i"]:
        line = Line(row, label, system, dimensions=int(first["dimensions"]), asked=len(seeds))
        for direction in first["systems"]:
            found = [content["systems"][direction][system] for content in metrics.values()]
            line.means[direction] = pd.DataFrame(found, index=list(metrics))[list(NAMES)]
            chosen = [
                table[(table["direction"] == direction) & (table["system"] == system)] for table in queries.values()
            ]
            together = pd.concat(chosen).groupby("qid")[list(NAMES)]
            if (together.size() != len(cells)).any():
                raise ValueError(f"the cells of {folder} do not have the same queries")
            line.queries[direction] = together.mean()
            if system in first["w"].get(direction, {}):
                line.weights[direction] = [content["w"][direction][system] for content in metrics.values()]
        if system != "D" and "active" in first:
            text, image = np.mean([content["active"] for content in metrics.values()], axis=0)
            line.active = (float(text), float(image))
        lines.append(line)
    return sorted(lines, key=lambda line: list(LABELS).index(line.system))


def test(lines: list[Line], baselines: list[Line]) -> None:
    """Fill in p values: a paired t-test of seed-mean values a query, against the baseline with the best mean.

    Args:
        lines: Those to test.
        baselines: All systems of all other methods; the best is chosen for each direction and measure.
    """
    for line in lines:
        for direction, own in line.queries.items():
            others = [baseline for baseline in baselines if direction in baseline.queries]
            for name in NAMES if others else ():
                best = max(others, key=lambda other: other.queries[direction][name].mean())
                p, better = compare(own[name], best.queries[direction][name])
                line.p_values.setdefault(direction, {})[name] = p
                line.better.setdefault(direction, {})[name] = better


def compare(own: pd.Series, other: pd.Series) -> tuple[float, bool]:
    """The two-sided paired t-test of two values a query, and whether the first mean is larger.

    Raises:
        ValueError: If the queries differ.
    """
    if not own.index.equals(other.index):
        raise ValueError("two systems to compare have different queries")
    if (own == other).all():
        return 1.0, False
    return float(ttest_rel(own, other).pvalue), bool(own.mean() > other.mean())


def text_table(lines: list[Line], directions: Sequence[str]) -> pd.DataFrame:
    """The table in words: percent, mean ± standard deviation over seeds, a dagger where p < 0.05 and better."""
    rows = []
    for line in lines:
        partial = f" ({line.seeds} of {line.asked} seeds)" if 0 < line.seeds < line.asked else ""
        row = {"method": line.label + partial, "system": LABELS.get(line.system, "missing")}
        for direction in directions:
            prefix = "i2t " if direction == "i2t" else ""
            row[prefix + "w"] = ", ".join(f"{w:.3g}" for w in line.weights.get(direction, []))
            for name in NAMES:
                row[prefix + name] = _cell(line, direction, name)
        active, dims = line.active, line.dimensions
        row["active text / image"] = "" if active is None else " / ".join(f"{number:,.1f}" for number in active)
        row["%"] = "" if active is None else " / ".join(f"{100 * number / dims:.1f}" for number in active)
        row["dims"] = f"{dims:,}" if active is not None else ""
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(line: Line, direction: str, name: str) -> str:
    if direction not in line.means:
        return "missing"
    values = 100 * line.means[direction][name]
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    significant = line.p_values.get(direction, {}).get(name, 1.0) < LEVEL and line.better[direction][name]
    return f"{values.mean():.2f}{spread}" + (DAGGER if significant else "")


def numbers(lines: list[Line]) -> pd.DataFrame:
    """The table for machines: a row a line, direction and measure."""
    rows: list[dict[str, Any]] = []
    for line in lines:
        for direction, table in line.means.items():
            for name in NAMES:
                values = table[name]
                rows.append(
                    {
                        "row": line.row,
                        "method": line.label,
                        "system": line.system,
                        "direction": direction,
                        "measure": name,
                        "mean": values.mean(),
                        "std": values.std(ddof=1) if len(values) > 1 else float("nan"),
                        "seeds": " ".join(map(str, table.index)),
                        "p": line.p_values.get(direction, {}).get(name, float("nan")),
                        "w": " ".join(f"{w:g}" for w in line.weights.get(direction, [])),
                        "active_text": float("nan") if line.active is None else line.active[0],
                        "active_image": float("nan") if line.active is None else line.active[1],
                        "dimensions": line.dimensions,
                    }
                )
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """A Markdown table."""
    head = [" | ".join(table.columns), " | ".join("---" for _ in table.columns)]
    lines = head + [" | ".join(str(value) for value in row) for row in table.itertuples(index=False)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def latex(table: pd.DataFrame) -> str:
    """A LaTeX tabular (booktabs)."""
    lines = [" & ".join(map(_escape, table.columns)) + r" \\", r"\midrule"]
    lines += [" & ".join(_escape(str(value)) for value in row) + r" \\" for row in table.itertuples(index=False)]
    body = "\n".join([rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}", r"\toprule", *lines, r"\bottomrule"])
    return body + "\n\\end{tabular}\n"


def _escape(text: str) -> str:
    for plain, escaped in (("\\", r"\textbackslash{}"), ("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("#", r"\#")):
        text = text.replace(plain, escaped)
    return text.replace("±", r"$\pm$").replace(DAGGER, r"$^\dagger$").replace("|", r"$|$")


def notes(seeds: Sequence[int]) -> str:
    """What a reader of a table has to know."""
    names = ", ".join(map(str, seeds))
    return (
        f"Test split, percent, mean ± standard deviation over seeds {names}. {DAGGER}: better than the best system of "
        f"all other methods, paired t-test of seed-mean values a query, p < {LEVEL}. Active: mean non-zero dimensions "
        "on test, and their share of all."
    )


def write(lines: list[Line], directions: Sequence[str], out: Path, name: str, notes: str) -> str:
    """Write ``name.csv``, ``name.md`` and ``name.tex`` and return the Markdown."""
    table = text_table(lines, directions)
    out.mkdir(parents=True, exist_ok=True)
    numbers(lines).to_csv(out / f"{name}.csv", index=False)
    shown = markdown(table) + "\n" + notes + "\n"
    (out / f"{name}.md").write_text(shown, encoding="utf-8")
    (out / f"{name}.tex").write_text(latex(table) + f"% {notes}\n", encoding="utf-8")
    return shown
