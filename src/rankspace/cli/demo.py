"""`rankspace demo`: the main job on data the package makes itself."""

from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_options import Device, DeviceName, device_name, seeds_of
from rankspace.seeds import LARGEST_SEED


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for everything the demo writes.")] = Path(
        "demo-output"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Take half a minute: a smaller treebank, fewer epochs.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Seed of weights and batches.")] = 1,
    seeds: Annotated[str, typer.Option("--seeds", help="Several seeds, such as 1,2,3: one demo for each.")] = "",
    device: Device = DeviceName.cpu,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Make a treebank, train a grammar and a language model on its words alone, and show what they learned.

    This takes about three minutes on two cores, or half a minute with --quick. At the end it prints the path of a
    report.

    Examples:

      rankspace demo --quick

      rankspace demo --seeds 1,2,3 --json
    """
    chosen = seeds_of("demo", seeds) if seeds else [seed]
    place = device_name("demo", device)
    import torch

    from rankspace.demo import run
    from rankspace.training.progress import make_display

    torch.set_num_threads(1)  # matrices this small are multiplied sooner than threads are woken
    jobs = []
    for each in chosen:
        folder = output / f"seed-{each}" if len(chosen) > 1 else output
        display = make_display(quiet)
        jobs.append(run(folder, each, quick, (lambda _: None) if quiet else display.say, display, place))
    if json:
        print_json(_summary(chosen, jobs, place))
    else:
        _show(chosen, jobs)


def _summary(seeds: list[int], jobs: list[Any], device: str) -> dict[str, Any]:
    import torch

    from rankspace.training.machine import environment

    found = {
        "environment": environment(torch.device(device)),
        "models": [_grammar(model) for model in jobs[0].grammars],
        "runs": [
            {"seed": seed, **job.scores.to_json(), "report": str(job.report)}
            for seed, job in zip(seeds, jobs, strict=True)
        ],
    }
    return {**found, "mean": _means(jobs)}


def _means(jobs: list[Any]) -> dict[str, float]:
    return {
        "points_above_right_branching": fmean(job.scores.points_above_right_branching for job in jobs),
        "share_below_unigram": fmean(job.scores.share_below_unigram for job in jobs),
    }


def _grammar(model: Any) -> dict[str, Any]:
    return {
        "name": model.name,
        "sentences": [row._asdict() for row in model.rows],
        "tables": {name: list(table.shape) for name, table in model.rank_space.tables.items()},
        "plans": [
            {
                "order": plan.order,
                "state_flops": plan.state.flops,
                "rank_flops": plan.rank.flops,
                "speedup": plan.speedup,
            }
            for plan in model.plans
        ],
        "pictures": [str(path) for path in model.pictures],
    }


def _show(seeds: list[int], jobs: list[Any]) -> None:
    for seed, job in zip(seeds, jobs, strict=True):
        _show_scores(f", seed {seed}" if len(jobs) > 1 else "", job)
    if len(jobs) > 1:
        means = _means(jobs)
        print_line(
            f"\nmean of {len(jobs)} seeds: {means['points_above_right_branching']:+.1f} points over right-branching, "
            f"perplexity {means['share_below_unigram']:.0%} below the unigram model"
        )
    for model in jobs[0].grammars:
        print_line(f"\n{model.name}: p(sentence) by enumeration and in rank space")
        rows = [(row.sentence, *(f"{value:.6e}" for value in row[1:])) for row in model.rows]
        print_table(["sentence", "brute force", "original grammar", "rank space", "generic engine"], rows)
        print_line("\nOperations of both orders, here and at the paper's size")
        counts = [(f"{plan.state.flops:.3g}", f"{plan.rank.flops:.3g}", plan.order) for plan in model.plans]
        print_table(["flops over states", "flops over ranks", "cheaper"], counts)
        print_line("")
        print_pairs([("drawn to", str(path)) for path in model.pictures])
    for job in jobs:
        print_line("")
        print_pairs([("trained models", f"{job.output}/grammar  {job.output}/hmm"), ("report", str(job.report))])


def _show_scores(title: str, job: Any) -> None:
    scores = job.scores
    print_line(f"\nParses of the test sentences{title}")
    rows = [(name, *("-" if value is None else f"{value:.1f}" for value in values)) for name, *values in scores.rows]
    print_table(["parser", "S-F1", "S-F1, > 2 words", "corpus F1"], rows)
    print_line(f"\nPerplexity of the test sentences{title}")
    print_table(["model", "perplexity"], [(name, f"{value:.1f}") for name, value in scores.perplexities.items()])
    print_line("")
    print_line(
        f"The grammar is {scores.points_above_right_branching:+.1f} points S-F1 over right-branching; the HMM's "
        f"perplexity is {scores.share_below_unigram:.0%} below that of the unigram model."
    )
