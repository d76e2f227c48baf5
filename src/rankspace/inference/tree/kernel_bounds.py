"""How large a low-rank grammar may be for the kernels: what their floors (kernels/scales.py) are proved for.

FLOOR is above what underflows in a sum of 2^16 products, and above 2^15 entries of a link that were raised to
LINK_FLOOR. Products are summed over the ranks of a span, over the preterminals of a word, over the nonterminals of the
link and of the root, and over the splits of a sentence, of whose charts memory holds none with so many words.
"""

MOST_RANKS, MOST_SYMBOLS = 2**15, 2**16


def unfit(rank: int, nonterminals: int, preterminals: int) -> str:
    """Why the kernels are not for a grammar of these sizes; nothing if they are."""
    if rank > MOST_RANKS:
        return f"its kernels are for at most {MOST_RANKS} ranks and there are {rank}"
    if max(nonterminals, preterminals) > MOST_SYMBOLS:
        return (
            f"its kernels are for at most {MOST_SYMBOLS} nonterminals and as many preterminals and there are "
            f"{nonterminals} and {preterminals}"
        )
    return ""
