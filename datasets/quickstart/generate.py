#!/usr/bin/env python3
"""Writes the problems of the quickstart project: problems.jsonl, eval.jsonl, planted.json.

Everything is drawn from one seed, so a second run gives the same bytes:

    python3 generate.py            write the three files
    python3 generate.py --check    compare the three files with what would be written

Before anything is written, every answer is recomputed from the arithmetic that stands
beside it, and the claims of planted.json are measured (`verify_corpus` says which).
Needs Python 3.10 or newer and nothing else.
"""

import argparse
import collections
import json
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

from arithmetic import families, written
from templates import (
    EVAL_EN, EVAL_PLACES, EVAL_SHORT, EVAL_TWINS, EVAL_ZH, NAMES, NAMES_ZH, THINGS, THINGS_ZH, TWINS, WORDS_EN, WORDS_ZH,
)

SEED = 20
BARE, WORDS = 191, 11  # plain arithmetic and word problems, beside those that are planted
HERE = Path(__file__).resolve().parent
NEAR_DUPLICATE = 0.85  # planted near-duplicates lie above this 5-gram Jaccard similarity
UNRELATED = 0.80  # all other pairs lie below this one, unless their numbers and answers differ
# what dag.toml shows the model before each question; no problem may ask the same
SHOTS = ["What is 34 + 25?", "What is 7 * 8?"]
OVERLAP = 10  # tokens in a row that count as contamination

# ---------------------------------------------------------------------------- text measures


def tokens(text):
    """Words in lower case, numbers as one token, Chinese by character; no punctuation."""
    return re.findall(r"[0-9]+(?:[.,/][0-9]+)*|[a-z]+(?:'[a-z]+)?|[\u4e00-\u9fff]", text.lower())


def grams(text, size):
    """The set of `size` tokens in a row; a shorter text is one gram."""
    words = tokens(text)
    if len(words) < size:
        return {tuple(words)}
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def jaccard(left, right):
    return len(left & right) / len(left | right)


def masked(text):
    """The text with every number replaced: equal for number-changed twins."""
    return re.sub(r"[0-9]+(?:[.,/][0-9]+)*", "#", text)


def value_of(answer):
    """An answer as an exact number: `1,250`, `3/4`, `2.5` and `20%` are read."""
    text = answer.replace(",", "")
    if text.endswith("%"):
        return Fraction(text[:-1]) / 100
    return Fraction(text)


# ----------------------------------------------------------------------------- single problems


def fill(rng, text, formula, ranges, names, things):
    """One problem from a template: its text and the exact value of its formula."""
    while True:
        letters = {key: rng.randint(*span) for key, span in zip("abc", ranges)}
        letters["t"] = letters["a"] * letters.get("b", 1)
        value = evaluate(formula, letters)
        if value.denominator == 1 and value > 0:
            shown = text.format(n=rng.choice(names), o=rng.choice(things), p=rng.choice(EVAL_PLACES), **letters)
            return shown, value, formula, letters


def evaluate(formula, letters):
    return eval(formula, {"__builtins__": {}, "Fraction": Fraction}, {k: Fraction(v) for k, v in letters.items()})


# -------------------------------------------------------------------------------- the corpus


class Corpus:
    """Problems so far, with what is needed to keep them apart by accident."""

    def __init__(self):
        self.rows = []
        self.known = []  # their 5-grams
        self.seen = {tuple(tokens(shot)) for shot in SHOTS}  # texts without symbols, and (text without numbers, answer)

    def is_free(self, text, answer, evaluation):
        """No accidental twin: neither of a problem nor (by ten tokens in a row) of an eval item."""
        if tuple(tokens(text)) in self.seen or (masked(text), answer) in self.seen:
            return False
        if grams(text, OVERLAP) & evaluation:
            return False
        mine = grams(text, 5)
        return all(jaccard(mine, other) < UNRELATED or len(mine) == 1 for other in self.known)

    def add(self, family, language, difficulty, text, answer, check):
        self.seen |= {tuple(tokens(text)), (masked(text), answer)}
        self.known.append(grams(text, 5))
        row = {"id": "", "question": text, "answer": answer, "family": family, "language": language, "difficulty": difficulty}
        self.rows.append((row, check))
        return row


def make_eval(rng):
    items, checks, seen = [], [], set()
    plan = [(t, 3) for t in EVAL_EN] + [(t, 2) for t in EVAL_ZH] + [(t, 4) for t in EVAL_SHORT]
    for (text, formula, *ranges), count in plan:
        made = 0
        while made < count:
            shown, value, formula, letters = fill(rng, text, formula, ranges, [""], [""])
            if tuple(tokens(shown)) in seen or (masked(shown), value) in seen:
                continue
            seen |= {tuple(tokens(shown)), (masked(shown), value)}
            items.append({"id": f"e{len(items):03}", "question": shown, "answer": f"{int(value):,}"})
            checks.append((formula, letters))
            made += 1
    return items, checks


def make_problems(rng, evaluation):
    corpus = Corpus()
    taken = set().union(*(grams(item["question"], OVERLAP) for item in evaluation))
    for kind in families():
        for index in range(kind["count"]):
            wording = kind["wordings"][index % len(kind["wordings"])]
            for _ in range(2000):
                shown, formula = kind["draw"](rng)
                value = Fraction(evaluate(formula, {}))
                answer = written(value, kind["family"], shown)
                text = wording.format(e=shown)
                if corpus.is_free(text, answer, taken):
                    break
            else:
                continue  # the answers of this wording are used up
            language = "zh" if kind["family"] == "bare_zh" else "en"
            corpus.add(kind["family"], language, kind["difficulty"], text, answer, (formula, {}))
    for language, templates, count, names, things in (
        ("en", WORDS_EN, 2, NAMES, THINGS),
        ("zh", WORDS_ZH, 2, NAMES_ZH, THINGS_ZH),
    ):
        for difficulty, text, formula, *ranges in templates:
            made = 0
            while made < count:
                shown, value, _, letters = fill(rng, text, formula, ranges, names, things)
                if corpus.is_free(shown, f"{int(value):,}", taken):
                    corpus.add(f"word_{language}", language, difficulty, shown, f"{int(value):,}", (formula, letters))
                    made += 1
    return corpus


# ------------------------------------------------------------------------------- the planted


def verbatim(text):
    return text


def rewrapped(text):
    """The same words on short lines, as copied from a narrow page."""
    words, lines = text.split(" "), []
    while words:
        lines.append(" ".join(words[:7]))
        words = words[7:]
    return "\n".join(lines)


def shouted(text):
    """Other case and punctuation, same words."""
    return text.upper().replace(",", " -").replace(";", " ...").replace(":", " -").rstrip("?.") + " ??"


def embedded(text):
    return f"Practice sheet 4, question 2. Read slowly and check your work. {text} Write the result at the bottom of the page."


def embedded_zh(text):
    return f"下面是一道练习题，请认真读题。{text}把答案写在横线上。"


def respaced(text):
    """Ascii punctuation and spaces, as typed on another keyboard."""
    return text.replace("，", ", ").replace("？", " ?")


def lowered(text):
    return text.lower().replace("?", "")


def plant_contaminated(corpus, evaluation, planted):
    """Eval items among the problems; each form is what a filter must see through."""
    forms = [
        (0, verbatim), (3, verbatim), (6, rewrapped), (9, rewrapped), (12, shouted), (15, shouted), (18, embedded),
        (21, embedded), (36, verbatim), (38, embedded_zh), (40, respaced), (48, verbatim), (52, verbatim), (57, lowered),
    ]
    for index, change in forms:
        item = evaluation[index]
        language = "zh" if 36 <= index < 48 else "en"
        family = "short" if index >= 48 else f"word_{language}"
        row = corpus.add(family, language, 4, change(item["question"]), item["answer"], ("v", {"v": value_of(item["answer"])}))
        planted["contaminated"].append((row, item["id"], change.__name__))


def plant_exact(corpus, planted, base):
    for row, check in base:
        copy = corpus.add(row["family"], row["language"], row["difficulty"], row["question"], row["answer"], check)
        planted["exact_duplicates"].append((copy, row))


NEAR_EN = [
    lambda t: t + " Thanks." if t.endswith(".") else t[:-1] + (" in all?" if t.endswith("now?") else " now?"),
    lambda t: "Question: " + t,
    lambda t: "Please solve: " + t,
    lambda t: t + " Explain.",
    lambda t: t.replace(". ", "; ").replace(", ", " - "),
    lambda t: "Exercise: " + t,
]
NEAR_ZH = [lambda t: "请问，" + t, lambda t: t[:-1] + "呢？", lambda t: "题：" + t]


def plant_near(corpus, planted, base):
    counts = collections.Counter()
    for row, check in base:
        changes = NEAR_ZH if row["language"] == "zh" else NEAR_EN
        change = changes[counts[row["language"]] % len(changes)]
        counts[row["language"]] += 1
        copy = corpus.add(row["family"], row["language"], row["difficulty"], change(row["question"]), row["answer"], check)
        planted["near_duplicates"].append((copy, row))


def plant_number_twins(corpus, planted):
    for language, text, formula, values in TWINS:
        rows = []
        for a in values:
            answer = f"{int(evaluate(formula, {'a': a})):,}"
            rows.append(corpus.add(f"word_{language}", language, 4, text.format(a=a), answer, (formula, {"a": a})))
        planted["number_twins"].append((rows[1], rows[0]))


def plant_eval_twins(corpus, evaluation, eval_checks, planted):
    for text, formula, first, second in EVAL_TWINS:
        pair = []
        for numbers in (first, second):
            letters = dict(zip("abcd", numbers))
            pair.append((text.format(p="Moorgate", **letters), f"{int(evaluate(formula, letters)):,}", (formula, letters)))
        item = {"id": f"e{len(evaluation):03}", "question": pair[0][0], "answer": pair[0][1]}
        evaluation.append(item)
        eval_checks.append(pair[0][2])
        language = "zh" if text[0] > "\u4dff" else "en"
        row = corpus.add(f"word_{language}", language, 5, *pair[1])
        planted["eval_number_twins"].append((row, item["id"]))


def build():
    rng = random.Random(SEED)
    evaluation, eval_checks = make_eval(rng)
    corpus = make_problems(rng, evaluation)
    planted = {key: [] for key in ("contaminated", "exact_duplicates", "near_duplicates", "number_twins", "eval_number_twins")}
    plain = list(corpus.rows)
    words_en = [row for row in plain if row[0]["family"] == "word_en" and len(tokens(row[0]["question"])) >= 16]
    words_zh = [row for row in plain if row[0]["family"] == "word_zh" and len(tokens(row[0]["question"])) >= 16]
    bases = rng.sample(words_en, 10) + rng.sample(words_zh, 5)
    short = rng.sample([row for row in plain if row[0]["family"] in ("table", "add_2", "mul_add")], 4)
    plant_near(corpus, planted, bases[:7] + bases[10:13])
    plant_exact(corpus, planted, bases[7:10] + bases[13:] + short + rng.sample([r for r in plain if r[0]["family"] == "bare_zh"], 1))
    plant_contaminated(corpus, evaluation, planted)
    plant_number_twins(corpus, planted)
    plant_eval_twins(corpus, evaluation, eval_checks, planted)
    rows = list(corpus.rows)
    rng.shuffle(rows)  # planted rows stand anywhere, also before their originals
    rows = thinned(rows, planted)
    for index, (row, _) in enumerate(rows):
        row["id"] = f"q{index:04}"
    verify_corpus(rows, evaluation, eval_checks, planted)
    named = {
        "contaminated": sorted(row["id"] for row, _, _ in planted["contaminated"]),
        "contamination": sorted([row["id"], item, form] for row, item, form in planted["contaminated"]),
        "exact_duplicates": sorted([row["id"], of["id"]] for row, of in planted["exact_duplicates"]),
        "near_duplicates": sorted([row["id"], of["id"]] for row, of in planted["near_duplicates"]),
        "number_twins": sorted([row["id"], of["id"]] for row, of in planted["number_twins"]),
        "eval_number_twins": sorted([row["id"], item] for row, item in planted["eval_number_twins"]),
    }
    return [row for row, _ in rows], evaluation, named


def thinned(rows, planted):
    """The first BARE and WORDS rows of the two sorts, and with them all that is planted and what it was made from."""
    needed = {id(row) for pairs in planted.values() for pair in pairs for row in pair[:2]}
    left = {True: WORDS, False: BARE}
    kept = []
    for row, check in rows:
        is_word = row["family"].startswith("word")
        if id(row) not in needed:
            left[is_word] -= 1
        if id(row) in needed or left[is_word] >= 0:
            kept.append((row, check))
    return kept


# -------------------------------------------------------------------------------- self-check


def verify_corpus(rows, evaluation, eval_checks, planted):
    """Recomputes every answer and measures every claim of planted.json; raises on the first that fails."""
    for row, (formula, letters) in rows + list(zip(evaluation, eval_checks)):
        if value_of(row["answer"]) != evaluate(formula, letters):
            raise ValueError(f"wrong answer: {row}")
    contaminated = {id(row): item for row, item, _ in planted["contaminated"]}
    eval_words = {tuple(tokens(item["question"])): item["id"] for item in evaluation}
    eval_grams = {item["id"]: {g for g in grams(item["question"], OVERLAP) if len(g) == OVERLAP} for item in evaluation}
    for row, _ in rows:
        mine = {g for g in grams(row["question"], OVERLAP) if len(g) == OVERLAP}
        hits = {name for name, theirs in eval_grams.items() if mine & theirs}
        same = eval_words.get(tuple(tokens(row["question"])))
        found = hits | ({same} if same else set())
        if (id(row) in contaminated) != bool(found) or (found and contaminated[id(row)] not in found):
            raise ValueError(f"contamination is not as planted: {row} {found}")
    joined = {frozenset((id(row), id(of))) for key in ("exact_duplicates", "near_duplicates") for row, of in planted[key]}
    for row, of in planted["exact_duplicates"]:
        if (row["question"], row["answer"]) != (of["question"], of["answer"]):
            raise ValueError(f"not an exact duplicate: {row}")
    for row, of in planted["near_duplicates"]:
        if row["question"] == of["question"] or numbers(row) != numbers(of):
            raise ValueError(f"not a near-duplicate: {row}")
        if jaccard(grams(row["question"], 5), grams(of["question"], 5)) < NEAR_DUPLICATE:
            raise ValueError(f"too far from its original: {row}")
    for row, of in planted["number_twins"]:
        if jaccard(grams(row["question"], 5), grams(of["question"], 5)) < NEAR_DUPLICATE:
            raise ValueError(f"a number twin that no filter would notice: {row}")
    for i, (row, _) in enumerate(rows):
        for other, _ in rows[:i]:
            pair = frozenset((id(row), id(other)))
            alike = jaccard(grams(row["question"], 5), grams(other["question"], 5)) >= UNRELATED
            twins = masked(row["question"]) == masked(other["question"])
            same_words = tokens(row["question"]) == tokens(other["question"])
            if pair not in joined and (same_words or ((alike or twins) and row["answer"] == other["answer"])):
                raise ValueError(f"accidental duplicates: {row['question']!r} {other['question']!r}")


def numbers(row):
    return re.findall(r"[0-9]+", row["question"])


# ---------------------------------------------------------------------------------- the files


def files():
    problems, evaluation, planted = build()

    def lines(rows):
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    parts = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in planted.items())
    return {"problems.jsonl": lines(problems), "eval.jsonl": lines(evaluation), "planted.json": "{\n" + parts + "\n}\n"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the files with what would be written")
    arguments = parser.parse_args()
    stale = []
    for name, text in files().items():
        path = HERE / name
        if not arguments.check:
            path.write_text(text, encoding="utf-8", newline="")
        elif not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            stale.append(name)
    if stale:
        print(f"differs from what generate.py writes: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
