"""Observing a sentence: the query "these are the words", and its conjunction with a model.

Words are the internal nodes that carry the observation label. A rule reads its words and nonterminal edges in the
order of its edges (a word stands where the first edge that touches it stands), so each nonterminal derives a stretch of
the sentence.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg.conjunction import Pair, assemble, impossible, same_factor
from rankspace.fgg.factor_graph_grammar import FGG, Domain, Factor, Indicator
from rankspace.fgg.grammar import Grammar, Rule
from rankspace.fgg.hypergraph import Edge, Fragment

MOST_VALUES = 10  # of a domain that are listed


class Item(NamedTuple):
    """A nonterminal over the stretch [begin, end) of a sentence."""

    label: str
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.label},({self.begin},{self.end})"


class Instance(NamedTuple):
    """A rule applied to an item: the items its nonterminal edges cover and the positions of its words."""

    lhs: Item
    rule: Rule
    children: tuple[Item, ...]  # in the order of the rule's nonterminal edges
    words: tuple[tuple[str, int], ...]  # (word node, position in the sentence)


def observe(fgg: FGG, sentence: Sequence[object] | Tensor, label: str | None = None) -> FGG:
    """The FGG of all derivations whose words are the given ones: the red part of figure 1.

    `sentence` holds values of the domain of the word label; None leaves a word open (it is summed over). `label` is
    that node label; without one it is "O", or the only label that no nonterminal edge touches. Nonterminals of the
    result are called "X,(i,j)", or "X,(i)" where the grammar is right-linear; a start symbol that no rule uses keeps
    its name.
    Raises GrammarError on a word outside of the domain. If no derivation has this length, Z is zero.
    """
    if isinstance(sentence, Tensor):
        sentence = sentence.tolist()
    reading = Reading(fgg, label or word_label(fgg, sentence))
    indices = reading.indices(sentence)
    query = _Query(reading, sentence, indices)
    for instance in reading.instances(len(sentence)):
        query.add(instance)
    if not query.pairs:
        return impossible(fgg, fgg.start)
    return assemble(fgg, query.fgg(), query.pairs, lambda pair: query.names[pair[1]])


def word_label(fgg: FGG, sentence: Sequence[object] = ()) -> str:
    """The node label that carries words; see `observe`."""
    touched = {end for ends in fgg.grammar.nonterminals.values() for end in ends}
    inner = dict.fromkeys(node.label for rule in fgg.rules for node in rule.rhs.nodes if node.label not in touched)
    if "O" in inner:
        return "O"
    fitting = [label for label in inner if all(w is None or fgg.domains[label].index(w) is not None for w in sentence)]
    if len(inner) == 1 or len(fitting) == 1:
        return next(iter(inner if len(inner) == 1 else fitting))
    raise GrammarError(
        f"observe: cannot tell which node label carries the words ({', '.join(inner) or 'none'} would do); "
        f"give its name."
    )


class Reading:
    """How an FGG spells out sentences: which rules apply to which stretches."""

    def __init__(self, fgg: FGG, label: str) -> None:
        if label not in fgg.domains:
            raise GrammarError(f"observe: there is no node label {label!r}; the labels are {', '.join(fgg.domains)}.")
        self.fgg = fgg
        self.label = label
        self.parts = {id(rule): self._parts(rule) for rule in fgg.rules}  # by identity: rules are slow to hash

    def indices(self, sentence: Sequence[object]) -> list[int | None]:
        """Place of each word in the domain; None for words left open."""
        domain = self.fgg.domains[self.label]
        for place, word in enumerate(sentence, start=1):
            if word is not None and domain.index(word) is None:
                raise _unknown_word(place, word, self.label, domain)
        return [None if word is None else domain.index(word) for word in sentence]

    @cached_property
    def right_linear(self) -> bool:
        """Whether every rule has at most one nonterminal edge, behind all of its words."""
        return all(
            isinstance(part, str) or i == len(parts) - 1
            for parts in self.parts.values()
            for i, part in enumerate(parts)
        )

    def instances(self, length: int) -> Iterator[Instance]:
        """Every rule application in a derivation of a sentence of this length; an item's follow each other."""
        lengths = self._lengths(length)
        start = Item(self.fgg.start, 0, length)
        seen, waiting = {start}, [start]
        while waiting:
            item = waiting.pop()
            for rule in self.fgg.grammar.rules_of[item.label]:
                for instance in self._applications(item, rule, lengths):
                    yield instance
                    for child in instance.children:
                        if child not in seen:
                            seen.add(child)
                            waiting.append(child)

    def _parts(self, rule: Rule) -> tuple[str | Edge, ...]:
        """Word nodes (by identifier) and nonterminal edges of a rule, in reading order."""
        nonterminal = self.fgg.grammar.nonterminals
        left = [n.id for n in rule.rhs.nodes if n.label == self.label and n.id not in rule.rhs.external]
        parts: list[str | Edge] = []
        for edge in rule.rhs.edges:
            parts += [node for node in dict.fromkeys(edge.nodes) if node in left]
            left = [node for node in left if node not in edge.nodes]
            if edge.label in nonterminal:
                parts.append(edge)
        return (*parts, *left)

    def _lengths(self, longest: int) -> dict[str, set[int]]:
        """Numbers of words, up to a longest, that each nonterminal can derive."""
        found = dict.fromkeys(self.fgg.grammar.nonterminals, 0)  # sets of numbers as bits
        changed = True
        while changed:
            changed = False
            for rule in self.fgg.rules:
                totals = 1
                for part in self.parts[id(rule)]:
                    widths = 2 if isinstance(part, str) else found[part.label]
                    totals = _sums(totals, widths, longest)
                changed = changed or bool(totals & ~found[rule.lhs])
                found[rule.lhs] |= totals
        return {label: set(_members(bits)) for label, bits in found.items()}

    def _applications(self, item: Item, rule: Rule, lengths: dict[str, set[int]]) -> Iterator[Instance]:
        parts = self.parts[id(rule)]

        def place(index: int, begin: int) -> Iterator[tuple[int, ...]]:
            """Where the parts from `index` on can end, when they begin at a position and fill the item."""
            if index == len(parts):
                if begin == item.end:
                    yield ()
                return
            part = parts[index]
            if index == len(parts) - 1:
                widths: Sequence[int] = [item.end - begin]
            else:
                widths = [1] if isinstance(part, str) else range(item.end - begin + 1)
            allowed = {1} if isinstance(part, str) else lengths[part.label]
            for width in widths:
                if width in allowed and begin + width <= item.end:
                    for rest in place(index + 1, begin + width):
                        yield begin + width, *rest

        for ends in place(0, item.begin):
            begins = (item.begin, *ends)
            spans = list(zip(parts, begins, ends, strict=False))
            yield Instance(
                item,
                rule,
                tuple(Item(part.label, b, e) for part, b, e in spans if isinstance(part, Edge)),
                tuple((part, b) for part, b, _ in spans if isinstance(part, str)),
            )


def _unknown_word(place: int, word: object, label: str, domain: Domain) -> GrammarError:
    """With the values that there are, if they are few, and the one that is written most like the word."""
    few = ": " + ", ".join(map(repr, domain.values)) if 0 < len(domain) <= MOST_VALUES else ""
    texts = [value for value in domain.values if isinstance(value, str)]
    close = get_close_matches(word, texts, 1) if isinstance(word, str) else []
    remedy = f"; did you mean {close[0]!r}?" if close else "."
    return GrammarError(
        f"observe: word {place} is {word!r}, which is not among the {len(domain)} values of {label!r}{few}{remedy}"
    )


def _members(bits: int) -> Iterator[int]:
    return (i for i in range(bits.bit_length()) if bits >> i & 1)


def _sums(left: int, right: int, longest: int) -> int:
    """All sums of a member of each of two sets of numbers, up to a longest."""
    fewer, more = sorted((left, right), key=int.bit_count)
    result = 0
    for member in _members(fewer):
        result |= more << member
    return result & ((2 << longest) - 1)


class _Query:
    """The grammar of the words alone, with the model's structure, and its rules paired with those of the model."""

    def __init__(self, reading: Reading, sentence: Sequence[object], indices: Sequence[int | None]) -> None:
        self.reading, self.sentence, self.indices = reading, sentence, indices
        self.pairs: dict[Pair, list[tuple[Rule, Rule]]] = {}
        self.factors: dict[str, Factor] = {}
        self.types: dict[str, tuple[str, ...]] = {}
        self.names: dict[str, str] = {}
        model = reading.fgg
        self.start = self._symbol(Item(model.start, 0, len(sentence)))
        if model.start not in {label for used in model.grammar.uses.values() for label in used}:
            self.names[self.start] = model.start

    def add(self, instance: Instance) -> None:
        """The rule of the words that goes with a rule of the model."""
        rhs = instance.rule.rhs
        nonterminal = self.reading.fgg.grammar.nonterminal_edges(instance.rule)
        edges = [
            Edge(edge.id, self._symbol(child), edge.nodes)
            for edge, child in zip(nonterminal, instance.children, strict=True)
        ]
        for node, position in instance.words:
            index = self.indices[position]
            if index is not None:
                terminal = self._terminal(index, self.sentence[position])
                edges.append(Edge(f"{node}=w{position}", terminal, (node,)))
        symbol = self._symbol(instance.lhs)
        rule = Rule(symbol, Fragment(rhs.nodes, tuple(edges), rhs.external))
        self.pairs.setdefault((instance.lhs.label, symbol), []).append((instance.rule, rule))

    def fgg(self) -> FGG:
        rules = tuple(rule for pairs in self.pairs.values() for _, rule in pairs)
        terminals = dict.fromkeys(self.factors, (self.reading.label,))
        model = self.reading.fgg
        grammar = Grammar(self.start, rules, terminals, self.types, model.grammar.open_start)
        return FGG(grammar, model.domains, self.factors)

    def _terminal(self, index: int, word: object) -> str:
        """The label of [v = word]; primes keep it apart from other factors, such as that of "1" beside 1."""
        text = f"{self.reading.label}={word}"
        factor = Indicator(index, self.reading.fgg.size(self.reading.label))
        model = self.reading.fgg.factors
        while not same_factor(self.factors.get(text, model.get(text, factor)), factor):
            text += "'"
        self.factors[text] = factor
        return text

    def _symbol(self, item: Item) -> str:
        text = f"{item.label}@{item.begin},{item.end}"
        if text not in self.names:
            span = f"({item.begin})" if self.reading.right_linear else f"({item.begin},{item.end})"
            self.names[text] = f"{item.label},{span}"
            self.types[text] = self.reading.fgg.grammar.nonterminals[item.label]
        return text
