"""The words of the synthetic treebank: lists in order of frequency, their inflection, and a Zipf-like law.

A list is written as base forms. Irregular ones carry their forms: man:men, see:sees:saw:seeing:seen. The number of a
class of words is part of its preterminal, so that grammar rules can ask for it.
"""

import re
from collections.abc import Iterable

Words = dict[str, float]  # word -> its probability within a class

FLATTENING = 2  # of content words: those of rank 1, 2, 3 are not that far apart
VOWELS = "aeiou"

NOUNS = """
    man:men woman:women child:children dog student teacher doctor house book city cat farmer king queen story car
    friend horse letter village garden door soldier river picture lawyer writer sailor table bird singer bridge tower
    painter neighbour guest judge baker desert mouse:mice song castle window sister brother kitchen box tree road
    market school ship train dancer merchant lady baby thief:thieves prisoner witness manager scientist nurse
    church field hill lake mountain forest library palace station hotel theatre museum factory wife:wives
    poem map key coin knife:knives basket boat wagon lamp ring flag drum clock chair mirror bell
"""
MODIFIERS = """
    city village kitchen garden school river market summer winter stone silver church forest hotel mountain
"""
MASS_NOUNS = "water music money bread wine advice silence snow justice paper gold smoke rain coffee patience"
NAMES = """
    john mary anna peter london paris susan george helen thomas emma robert alice martin clara rome walter laura
    vienna oscar berlin julia arthur edith lisbon victor nora hugo
"""
ADJECTIVES = """
    little young small big tall good new red quiet happy rich poor famous strange clever dark long furious brave green
    tired white heavy lonely gentle proud loyal hollow crooked beautiful broken careful cheap cold curious dusty
    charming foreign generous golden hungry kind lazy narrow nervous polite silent stubborn tiny wise
"""

VERBS = {  # by what follows them
    "intr": """
        sleep:sleeps:slept:sleeping:slept laugh work arrive walk speak:speaks:spoke:speaking:spoken
        sing:sings:sang:singing:sung wait run:runs:ran:running:run dance smile cry eat:eats:ate:eating:eaten
        fall:falls:fell:falling:fallen travel listen cough rest vanish swim:swims:swam:swimming:swum
        stand:stands:stood:standing:stood disappear return shout tremble read:reads:read:reading:read
    """,
    "tr": """
        see:sees:saw:seeing:seen like find:finds:found:finding:found know:knows:knew:knowing:known help watch
        love meet:meets:met:meeting:met visit follow hear:hears:heard:hearing:heard
        eat:eats:ate:eating:eaten buy:buys:bought:buying:bought paint call admire carry
        leave:leaves:left:leaving:left read:reads:read:reading:read clean open fear hide:hides:hid:hiding:hidden
        build:builds:built:building:built forget:forgets:forgot:forgetting:forgotten destroy
        steal:steals:stole:stealing:stolen
        catch:catches:caught:catching:caught hate push describe sing:sings:sang:singing:sung praise discover protect
        break:breaks:broke:breaking:broken repair choose:chooses:chose:choosing:chosen photograph ignore
    """,
    "di": """
        give:gives:gave:giving:given show:shows:showed:showing:shown send:sends:sent:sending:sent offer
        bring:brings:brought:bringing:brought sell:sells:sold:selling:sold teach:teaches:taught:teaching:taught
        lend:lends:lent:lending:lent hand promise
    """,
    "clausal": """
        say:says:said:saying:said think:thinks:thought:thinking:thought know:knows:knew:knowing:known believe
        hear:hears:heard:hearing:heard hope claim doubt discover forget:forgets:forgot:forgetting:forgotten suspect
        explain remember
    """,
    "control": """
        want try hope begin:begins:began:beginning:begun promise refuse decide agree learn hesitate
    """,
    "persuade": """
        ask tell:tells:told:telling:told force allow order expect invite warn
    """,
}
FUNCTION_WORDS = {
    "DT.sg": "the a this every that another no each",
    "DT.definite": "the these those",
    "DT.pl": "the some these all many those no few",
    "PRP$": "his her their our its",
    "PRP.sg.nom": "he she it",
    "PRP.pl.nom": "they we",
    "PRP.sg.acc": "him her it",
    "PRP.pl.acc": "them us",
    "POS": "'s",
    "CD": "two three five ten four six twelve",
    "IN": "in with on near at behind from under after without beside before above through across",
    "IN.of": "of",
    "IN.to": "to",
    "IN.by": "by",
    "IN.sub": "when because if while although after before since unless until",
    "IN.that": "that",
    "IN.whether": "whether",
    "TO": "to",
    "CC": "and or",
    "CC.clause": "and but so",
    "WP": "who",
    "WP.object": "whom",
    "WDT": "that which",
    "MD": "will can may would could should must might",
    "RB": "quickly often slowly never quietly always suddenly happily rarely carefully soon badly secretly proudly",
    "RB.opening": "sometimes perhaps now then finally usually recently fortunately surprisingly meanwhile",
    "RB.degree": "very too quite rather extremely",
    "RB.not": "not",
    "VBZ.be.sg": "is",
    "VBD.be.sg": "was",
    "VBP.be.pl": "are",
    "VBD.be.pl": "were",
    "VB.be.base": "be",
    "VBG.be.ing": "being",
    "VBN.be.en": "been",
    "VBZ.have": "has",
    "VBP.have": "have",
    "VBD.have": "had",
    "VB.have": "have",
    "VBZ.do": "does",
    "VBP.do": "do",
    "VBD.do": "did",
    "VB.do": "do",
}


def lexicon() -> dict[str, Words]:
    """The words of each preterminal with their probabilities, which sum to one."""
    plain = {"NNP": NAMES, "JJ": ADJECTIVES, "NN.modifier": MODIFIERS, "NN.mass": MASS_NOUNS}
    classes = {preterminal: words.split() for preterminal, words in plain.items()}
    classes |= {"NN": [_forms(noun)[0] for noun in NOUNS.split()], "NNS": [plural(noun) for noun in NOUNS.split()]}
    for kind, verbs in VERBS.items():
        classes |= _paradigm(kind, verbs.split())
    content = {preterminal: zipf(words, FLATTENING) for preterminal, words in classes.items()}
    return content | {preterminal: zipf(words.split()) for preterminal, words in FUNCTION_WORDS.items()}


def zipf(words: Iterable[str], flattening: int = 0) -> Words:
    """Probabilities of words in order of frequency: a word of rank 1, 2, ... weighs 1 / (rank + flattening).

    There are no powers, which round differently from one machine to another.
    """
    weights = {word: 1 / (rank + flattening) for rank, word in enumerate(words, start=1)}
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items()}


def plural(noun: str) -> str:
    """city -> cities, man:men -> men."""
    forms = _forms(noun)
    return forms[1] if len(forms) == 2 else _with_s(noun)


def conjugated(verb: str) -> tuple[str, str, str, str, str]:
    """Base, third person singular, past, present participle, past participle."""
    forms = _forms(verb)
    if len(forms) == 5:
        return forms[0], forms[1], forms[2], forms[3], forms[4]
    past = verb[:-1] + "ied" if _ends_in_consonant_y(verb) else verb.removesuffix("e") + "ed"
    return verb, _with_s(verb), past, verb.removesuffix("e") + "ing", past


def _paradigm(kind: str, entries: Iterable[str]) -> dict[str, list[str]]:
    """The preterminals of a class of verbs: VBP.tr and VB.tr have the same words, VBD.tr and VBN.tr often."""
    base, third, past, gerund, participle = (list(forms) for forms in zip(*map(conjugated, entries), strict=True))
    forms = {"VB": base, "VBP": base, "VBZ": third, "VBD": past, "VBG": gerund, "VBN": participle}
    return {f"{tag}.{kind}": words for tag, words in forms.items()}


def _forms(entry: str) -> list[str]:
    return entry.split(":")


def _with_s(word: str) -> str:
    if _ends_in_consonant_y(word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|ch|sh|o)$", word) else "s")


def _ends_in_consonant_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in VOWELS
