"""What one inside pass over a batch costs, term by term."""

from collections.abc import Sequence


def explained(lengths: Sequence[int], nonterminals: int, preterminals: int, rank: int, has_head: bool) -> str:
    """Flops (two for a product that is added) of each part, as text."""
    m, p, r = nonterminals, preterminals, rank
    long = [n for n in lengths if n > 1]
    bigrams, spans = sum(n - 1 for n in long), sum(n * (n - 1) // 2 for n in long)
    splits = sum((n - w + 1) * (w - 3) for n in long for w in range(4, n + 1))
    inner = sum((n - 3) * (n - 2) // 2 for n in long)
    terms = {
        "words, once": 4 * sum(long) * m * p * r,
        "two words": 2 * bigrams * p * p * r,
        "span beside word": 4 * (spans - bigrams) * m * r,
        "pairs of spans": 2 * splits * m * m,
        "pairs to ranks" if has_head else "pairs to symbols": 2 * inner * m * m * r,
        **({"head": 2 * spans * m * r} if has_head else {}),
    }
    sizes = f"{m} nonterminals, {p} preterminals" + (f", rank {r}" if has_head else "")
    lines = [
        "tree: state order, the only one: vectors over nonterminals, a full rule tensor",
        f"  {sizes}, sentences {len(lengths)}, spans of two words or more {spans}",
        *(f"    {name:<22}{flops:>10.3g} flops" for name, flops in terms.items()),
    ]
    return "\n".join(lines)
