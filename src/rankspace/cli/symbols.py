"""Names of the symbols of grammars, whose numbers mean nothing by themselves."""

from rankspace.trees import Tree


def symbol_name(number: int, num_nonterminals: int) -> str:
    """NT-3 for a nonterminal, PT-3 for a preterminal, each counted from 0."""
    return f"NT-{number}" if number < num_nonterminals else f"PT-{number - num_nonterminals}"


def with_names(tree: Tree, num_nonterminals: int) -> Tree:
    """The tree with names in place of numbers."""
    return tree.map_symbols(lambda symbol: symbol_name(int(symbol), num_nonterminals))
