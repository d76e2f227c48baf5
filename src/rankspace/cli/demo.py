"""`rankspace demo`: the main job on data the package makes itself."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table, working


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path("demo-output"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Compile an HMM and a PCFG to rank space and show that only the number of operations changes."""
    from rankspace import demo as demonstration

    with working("starting") as status:
        models = demonstration.run(output, status.update)
    print_json({"models": [_summary(model) for model in models]}) if json else _show(models)


def _summary(model: Any) -> dict[str, Any]:
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


def _show(models: list[Any]) -> None:
    for model in models:
        print_line(f"{model.name} as a factor graph grammar, compiled to rank space")
        print_line("")
        print_line(model.rank_space.explain())
        ways = ("brute force", "original grammar", "rank space", "generic engine")
        rows = [(row.sentence, *(f"{value:.6e}" for value in row[1:])) for row in model.rows]
        print_table(["probability of", *ways], rows)
        print_line("")
        print_line("Operations of both orders, here and at the paper's size")
        for plan in model.plans:
            print_line("")
            print_line(plan.explain())
        print_line("")
        print_pairs([("drawn to", str(path)) for path in model.pictures])
        print_line("")
