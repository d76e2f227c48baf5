"""The rules of the synthetic treebank as text, and the features that abbreviate them.

A line is a weight and a rule. Symbols are written LABEL.feature.feature: the label, up to the first dot, is what a tree
shows, the features stay inside. Symbols that the lexicon lists are preterminals. A variable in braces stands for each
of its values: one on the left ties both sides together (agreement), one on the right alone is a choice, which divides
the weight of the line. Weights are normalised for each left-hand side. Treebanks depend on every weight: to change one
is to publish another treebank.

    n, m, k  number of a noun phrase           c  its case; full: anything but a pronoun
    f        form of a verb phrase: sg and pl are finite, base follows will, en has, ing is
    t        finite form: sg or pl             h  tag of the verb that heads a phrase of form f or t
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NUMBER = {"sg": 3.0, "pl": 2.0}
FINITE_FORMS = ("sg", "pl")
VALUES: Mapping[str, Mapping[str, float]] = {
    "n": NUMBER,
    "m": NUMBER,
    "k": NUMBER,
    "c": {"nom": 1.0, "acc": 1.0, "full": 1.0},
    "f": dict.fromkeys(("sg", "pl", "base", "ing", "en"), 1.0),
    "t": dict.fromkeys(FINITE_FORMS, 1.0),
}
HEADS: Mapping[str, Mapping[str, float]] = {
    "sg": {"VBZ": 2.0, "VBD": 3.0},
    "pl": {"VBP": 2.0, "VBD": 3.0},
    "base": {"VB": 1.0},
    "ing": {"VBG": 1.0},
    "en": {"VBN": 1.0},
}

RULES = """
    32 S -> NP.{n}.nom VP.{n}
    18 S -> PP NP.{n}.nom VP.{n}
    5 S -> ADVP.opening NP.{n}.nom VP.{n}
    10 S -> SBAR.sub NP.{n}.nom VP.{n}
    6 S -> S.participle NP.{n}.nom VP.{n}
    4 S -> S.to NP.{n}.nom VP.{n}
    2 S -> S.participle VP.sg
    8 S -> VP.imperative
    7 S -> S.plain CC.clause S.plain
    94 S.plain -> NP.{n}.nom VP.{n}
    6 S.plain -> PP NP.{n}.nom VP.{n}

    26 NP.sg.{c} -> DT.sg NN
    15 NP.sg.{c} -> DT.sg JJ NN
    2 NP.sg.{c} -> DT.sg JJ JJ NN
    6 NP.sg.{c} -> DT.sg NN.modifier NN
    6 NP.sg.{c} -> PRP$ NN
    2 NP.sg.{c} -> PRP$ JJ NN
    4 NP.sg.{c} -> NNP
    4 NP.sg.nom -> PRP.sg.nom
    4 NP.sg.acc -> PRP.sg.acc
    2 NP.sg.{c} -> NN.mass
    1 NP.sg.{c} -> JJ NN.mass
    20 NP.pl.{c} -> DT.pl NNS
    11 NP.pl.{c} -> DT.pl JJ NNS
    4 NP.pl.{c} -> DT.pl NN.modifier NNS
    3 NP.pl.{c} -> NNS
    5 NP.pl.{c} -> JJ NNS
    4 NP.pl.{c} -> CD NNS
    2 NP.pl.{c} -> DT.definite CD NNS
    6 NP.pl.{c} -> PRP$ NNS
    4 NP.pl.nom -> PRP.pl.nom
    4 NP.pl.acc -> PRP.pl.acc
    6 NP.pl.{c} -> NP.{m}.full CC NP.{k}.full
    5 NP.sg.{c} -> NP.possessor NN
    1 NP.sg.{c} -> NP.possessor JJ NN
    4 NP.pl.{c} -> NP.possessor NNS
    5 NP.{n}.{c} -> NP.{n}.full PP
    3 NP.{n}.{c} -> NP.{n}.full PP.of
    4 NP.{n}.{c} -> NP.{n}.full SBAR.relative.{n}

    6 NP.possessor -> DT.sg NN POS
    2 NP.possessor -> DT.sg JJ NN POS
    3 NP.possessor -> NNP POS
    1 NP.possessor -> PRP$ NN POS
    1 PP -> IN NP.{m}.acc
    1 PP.of -> IN.of NP.{m}.acc
    1 PP.to -> IN.to NP.{m}.acc
    1 PP.by -> IN.by NP.{m}.acc

    12 SBAR.relative.{n} -> WHNP S.subject-gap.{n}
    3 SBAR.relative.{n} -> WHNP.object S.object-gap
    1 SBAR.relative.{n} -> S.object-gap
    3 WHNP -> WP
    4 WHNP -> WDT
    1 WHNP.object -> WP.object
    4 WHNP.object -> WDT
    1 S.subject-gap.{n} -> VP.{n}
    1 S.object-gap -> NP.{m}.nom VP.gap.{m}
    7 VP.gap.{t} -> {h}.tr
    1 VP.gap.{t} -> ADVP {h}.tr
    2 VP.gap.{t} -> MD VP.gap.base
    1 VP.gap.{t} -> {h}.have VP.gap.en
    1 VP.gap.base -> VB.tr
    1 VP.gap.en -> VBN.tr

    1 SBAR.sub -> IN.sub S.plain
    6 SBAR.that -> IN.that S.plain
    2 SBAR.that -> S.plain
    1 SBAR.that -> IN.whether S.plain
    1 S.to -> VP.to
    1 S.participle -> VP.ing
    1 VP.to -> TO VP.base

    6 VP.{f} -> {h}.intr
    5 VP.{f} -> {h}.intr ADVP
    8 VP.{f} -> {h}.intr PP
    3 VP.{f} -> ADVP {h}.intr
    20 VP.{f} -> {h}.tr NP.{m}.acc
    10 VP.{f} -> {h}.tr NP.{m}.acc PP
    6 VP.{f} -> {h}.tr NP.{m}.acc ADVP
    4 VP.{f} -> ADVP {h}.tr NP.{m}.acc
    2 VP.{f} -> {h}.tr NP.{m}.acc SBAR.sub
    3 VP.{f} -> {h}.di NP.{m}.acc NP.{k}.acc
    4 VP.{f} -> {h}.di NP.{m}.acc PP.to
    5 VP.{f} -> {h}.clausal SBAR.that
    5 VP.{f} -> {h}.control S.to
    2 VP.{f} -> {h}.persuade NP.{m}.acc S.to
    8 VP.{f} -> VP.{f} CC VP.{f}
    4 VP.{t} -> {h}.be.{t} ADJP
    2 VP.{t} -> {h}.be.{t} NP.{t}.full
    2 VP.{t} -> {h}.be.{t} PP
    3 VP.{t} -> {h}.be.{t} VP.ing
    3 VP.{t} -> {h}.be.{t} VP.passive
    7 VP.{t} -> MD VP.base
    1 VP.{t} -> MD RB.not VP.base
    3 VP.{t} -> {h}.do RB.not VP.base
    3 VP.{t} -> {h}.have VP.en
    2 VP.base -> VB.be.base ADJP
    2 VP.base -> VB.be.base VP.passive
    1 VP.base -> VB.have VP.en
    2 VP.en -> VBN.be.en ADJP
    2 VP.en -> VBN.be.en VP.passive
    1 VP.ing -> VBG.be.ing VP.passive
    6 VP.imperative -> VB.tr NP.{m}.acc
    3 VP.imperative -> VB.tr NP.{m}.acc PP
    3 VP.imperative -> VB.intr PP
    3 VP.imperative -> VB.di NP.{m}.acc NP.{k}.acc
    2 VP.imperative -> VB.di NP.{m}.acc PP.to
    3 VP.imperative -> VB.do RB.not VP.base
    4 VP.passive -> VBN.tr
    5 VP.passive -> VBN.tr PP.by
    2 VP.passive -> VBN.tr PP

    1 ADVP.opening -> RB.opening
    5 ADVP -> RB
    1 ADVP -> RB.degree RB
    5 ADJP -> JJ
    3 ADJP -> RB.degree JJ
    1 ADJP -> JJ CC JJ
"""


class Line(NamedTuple):
    """A line of the table without variables."""

    weight: float
    lhs: str
    rhs: tuple[str, ...]


def expand(table: str) -> list[Line]:
    """The rules that a table abbreviates, in its order."""
    return [line for text in table.splitlines() if text.strip() for line in _readings(text)]


def _readings(text: str) -> Iterator[Line]:
    weight, rule = text.split(maxsplit=1)
    lhs, rhs = rule.split("->")
    for tied, left, _ in _assignments(lhs.strip(), {}):
        for _, right, share in _assignments(rhs.strip(), tied):
            yield Line(float(weight) * share, left, tuple(right.split()))


def _assignments(text: str, values: dict[str, str]) -> list[tuple[dict[str, str], str, float]]:
    """Each choice of values for the variables of a text: the values, the text with them, the share of the choice."""
    variables = re.findall(r"{(\w)}", text)
    name = next((variable for variable in variables if variable not in values), None)
    if name is None:
        return [(values, text.format(**values), 1.0)]
    weights = HEADS[values.get("f") or values["t"]] if name == "h" else VALUES[name]
    total = sum(weights.values())
    return [
        (assigned, filled, share * weight / total)
        for value, weight in weights.items()
        for assigned, filled, share in _assignments(text, {**values, name: value})
    ]
