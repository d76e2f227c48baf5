"""`rankspace fgg`: factor graph grammars in files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rankspace.cli.help_text import Command, Group
from rankspace.cli.output import number, print_json, print_line, print_table, shown, shown_all, working
from rankspace.cli.run_options import check_file, tell_lacking
from rankspace.errors import DecompositionError, GrammarError, RankspaceError
from rankspace.seeds import LARGEST_SEED

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="""Factor graph grammars: check a file, sum over it, compile it to rank space, draw it.

    Examples:

    rankspace fgg check grammar.json

    rankspace fgg z grammar.json --sentence "the dog barks"
    """,
)


class SemiringName(StrEnum):
    """What to compute of all derivations and assignments; as in `rankspace.fgg.sum_product`."""

    real = "real"
    log = "log"
    max = "max"
    boolean = "boolean"
    counting = "counting"
    entropy = "entropy"


GrammarFile = Annotated[Path, typer.Argument(metavar="FILE", help="A grammar in the JSON format of the fggs library.")]
OpenStart = Annotated[bool, typer.Option("--open-start", help="Allow a start symbol with endpoints.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object; numbers that are not finite are strings such as '-inf'.")
]


@app.command(cls=Command)
def check(
    file: GrammarFile,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a grammar with useless nonterminals.")] = False,
    open_start: OpenStart = False,
    as_json: AsJson = False,
) -> None:
    """Check a grammar and print what is in it.

    Examples:

    rankspace fgg check grammar.json --strict
    """
    from rankspace.cli.grammar_file import load_grammar
    from rankspace.cli.grammar_summary import print_summary, refuse_useless, summarise

    fgg = load_grammar(file, open_start)
    if strict:
        refuse_useless(fgg, file)
    summary = summarise(fgg, file)
    if as_json:
        print_json(summary)
    else:
        print_summary(summary)


@app.command(cls=Command)
def z(
    file: GrammarFile,
    sentence: Annotated[
        str | None, typer.Option(help="The sentence to observe: words with blanks between them.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Node label that carries the words, where several could.")] = None,
    semiring: Annotated[SemiringName, typer.Option(help="What to compute.")] = SemiringName.real,
    open_start: OpenStart = False,
    as_json: AsJson = False,
) -> None:
    """Sum over all derivations and assignments of a grammar, or of those that yield a sentence.

    Examples:

    rankspace fgg z grammar.json

    rankspace fgg z grammar.json --sentence "the dog barks" --semiring log
    """
    if label is not None and sentence is None:
        raise RankspaceError("--label says which node label carries the words; give them with --sentence.")
    from rankspace.cli.grammar_file import load_grammar
    from rankspace.cli.grammar_query import answer, observed, print_answer

    fgg = load_grammar(file, open_start)
    if sentence is not None:
        fgg = observed(fgg, sentence, label)
    result = answer(fgg, semiring.value)
    if as_json:
        words = None if sentence is None else sentence.split()
        print_json({"file": str(file), "sentence": words, "semiring": semiring.value, **result})
    else:
        print_answer(fgg, result)


@app.command(cls=Command)
def rank_space(
    file: GrammarFile,
    rank: Annotated[int, typer.Option(min=1, help="Rank of each decomposition.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.json", help="The file to write.")],
    max_error: Annotated[float, typer.Option(min=0, help="Largest relative error allowed in a decomposition.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random starts.")] = 0,
    restarts: Annotated[int, typer.Option(min=1, help="Random starts of each decomposition.")] = 10,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.json if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Decompose the factors of a B-FGG and sum its states out: the same Z, over ranks.

    Examples:

    rankspace fgg rank-space grammar.json --rank 3 -o ranks.json
    """
    check_file(output, force)
    from rankspace.cli.grammar_file import load_grammar
    from rankspace.fgg import save_json
    from rankspace.lowrank import fit_cpds, is_b_fgg, to_rank_space

    fgg = load_grammar(file, open_start=False)
    verdict = is_b_fgg(fgg)
    if not verdict:
        raise GrammarError(f"{file}: not a B-FGG, so it has no rank space: {verdict.reason}")
    with working("fitting decompositions"):
        fits = fit_cpds(fgg, rank, seed=seed, restarts=restarts)
    _refuse_poor_fits({name: fit.relative_error for name, fit in fits.items()}, rank, max_error)
    result = to_rank_space(fgg, {name: fit.cpd for name, fit in fits.items()}, tolerance=max_error)
    save_json(result, output)
    if as_json:
        print_json(
            {
                "file": str(file),
                "output": str(output),
                "rank": rank,
                "seed": seed,
                "relative_errors": {name: fit.relative_error for name, fit in fits.items()},
                "tables": {name: list(table.shape) for name, table in result.tables.items()},
                "explanation": result.explain(),
            }
        )
        return
    print_line(result.explain())
    print_table(
        ["rule", "rank", "relative error"],
        [[shown(name), str(fit.cpd.rank), number(fit.relative_error)] for name, fit in fits.items()],
    )
    print_line(f"\nwrote {output}")


@app.command(cls=Command)
def draw(
    file: GrammarFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.svg", help="A .svg, .png or .pdf file.")],
    rule: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Draw only this rule; may be repeated.")
    ] = None,
) -> None:
    """Draw the rules of a grammar as factor graphs.

    Examples:

    rankspace fgg draw grammar.json -o rules.svg --rule pi_1
    """
    from rankspace.cli.grammar_file import load_grammar
    from rankspace.viz import draw_rules

    fgg = load_grammar(file, open_start=True)
    names = [known.name for known in fgg.rules]
    for name in rule or ():
        if name not in names:
            raise GrammarError(f"{file}: there is no rule {name!r}; the rules are {shown_all(names)}.")
    lacking = draw_rules(fgg, output, rules=rule or None)
    print_line(f"wrote {output}")
    tell_lacking("draw", output, lacking)


def _refuse_poor_fits(errors: dict[str, float], rank: int, max_error: float) -> None:
    for name, error in errors.items():
        if not error <= max_error:  # also where either is NaN
            raise DecompositionError(
                f"rule {shown(name)}: the relative error of its decomposition at rank {rank} is {error:.2e}, more than "
                f"--max-error {max_error:.2e}; give a larger --rank, or a larger --max-error. Nothing was written."
            )
