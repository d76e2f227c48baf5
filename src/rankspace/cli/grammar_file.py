"""The grammar file that a command is about."""

from pathlib import Path

from rankspace.errors import GrammarError
from rankspace.fgg import FGG, load_json


def load_grammar(file: Path, open_start: bool) -> FGG:
    """The grammar in a file; a start symbol with endpoints only if it is asked for."""
    fgg = load_json(file, open_start=True)
    ends = fgg.grammar.nonterminals[fgg.start]
    if ends and not open_start:
        raise GrammarError(
            f"{file}: start symbol {fgg.start!r} has endpoints ({', '.join(ends)}) but takes none; add a rule that "
            f"sums them out, or give --open-start for a result over them."
        )
    return fgg
