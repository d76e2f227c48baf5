"""Cells of the tables of a page, from rows of a record as `planned_record` gives them; nothing known is empty text."""

from statistics import fmean
from typing import Any

from rankspace.experiments.statistics import figure, num_infinite
from rankspace.training.run_directory import HELD_OUT


def title(row: dict[str, Any]) -> str:
    whole = row["ablation_of"]
    name = f"`{row['name']}`{f', of `{whole}`' if whole else ''}"
    return f"{row['title']} ({name}){', *former model*' if is_former(row) else ''}"


def is_former(row: dict[str, Any]) -> bool:
    return bool(row["runs"]) and row["weights"] != row["weights_now"]


def source(row: dict[str, Any]) -> str:
    """Who reports the figures of a row."""
    return str(row["paper"].get("source", "the paper")) if row["paper"] else ""


def main_figure(row: dict[str, Any], split: str, measure: str) -> str:
    found = over_seeds(row, split, measure)
    return f"**{found}**" if found else "not finished" if row["runs"] else "not run yet"


def over_seeds(row: dict[str, Any], split: str, measure: str) -> str:
    """A figure of a row; seeds where it is infinite have no part in the mean, and are counted."""
    num = num_infinite(row, split, measure)
    parts = [spread(figure(row, split, measure)), f"{num} infinite" if num else ""]
    return ", ".join(part for part in parts if part)


def weights(row: dict[str, Any]) -> str:
    """Of the model, in millions."""
    return f"{row['weights'] / 1e6:.1f} M" if row["weights"] else ""


def change(row: dict[str, Any], whole: dict[str, Any] | None, measure: str) -> str:
    """Of a mean on the validation split, against the row that this one is an ablation of."""
    own, others = (each and figure(each, "valid", measure) for each in (row, whole))
    return f"{own['mean'] - others['mean']:+.1f}" if own and others else ""


def seeds(row: dict[str, Any]) -> str:
    return f"{row['statistics']['num']} of {len(row['planned_seeds'])}"


def minutes(row: dict[str, Any]) -> list[str]:
    """Of the fastest run, and how many its command had on the device at once."""
    fastest = row["statistics"]["fastest"]
    return [f"{fastest['minutes']:.1f}", str(fastest["sharing"] or "?")] if fastest else ["", ""]


def together(row: dict[str, Any], split: str, measure: str) -> str:
    """Of seeds that parse together, and the mean of single ones with the same checkpoints; with the seeds where these
    are not all."""
    found = row.get("together")
    value = found["scores"].get(split, {}).get(measure) if found else None
    if found is None or value is None:
        return ""
    seeds = found["runs"][row["name"]]
    runs = [run for run in row["runs"] if run["seed"] in seeds]
    chosen = "" if found["checkpoint"] == HELD_OUT else ", by S-F1"
    some = "" if len(seeds) == row["statistics"]["num"] else f"; seeds {', '.join(map(str, seeds))}"
    return f"{value:.1f} ({fmean(alone(runs, found, split, measure)):.1f}{chosen}{some})"


def alone(runs: list[dict[str, Any]], together: dict[str, Any], split: str, measure: str) -> list[float]:
    """A figure of each of some finished runs, with the checkpoint that it has where they parse together."""
    by_text = together["checkpoint"] == HELD_OUT
    done = [run for run in runs if run["state"] == "finished"]
    return [(run["by_text"] if by_text else run)["scores"][split][measure] for run in done]


def time_to(row: dict[str, Any]) -> str:
    """Minutes of the run that was first at a perplexity of the validation split, and how many got there."""
    found, num = row["statistics"]["minutes_to"], row["statistics"]["num"]
    if found is None or not num:
        return ""
    reached = f"{found['best']:.1f} ({found['num']} of {num})" if found["num"] else "not reached"
    return f"{found['perplexity']:g}: {reached}"


def both(row: dict[str, Any]) -> str:
    return " / ".join(over_seeds(row, split, "perplexity") for split in ("valid", "test"))


def reported(given: dict[str, Any]) -> str:
    if "s_f1" not in given:
        return ""
    deviation = f" ± {given['deviation']:.1f}" if "deviation" in given else ""
    return number(given["s_f1"]) + deviation + (f" ({given['num']} runs)" if "num" in given else "")


def spread(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['mean']:.1f}" + (f" ± {found['deviation']:.1f}" if found["num"] > 1 else "")


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
