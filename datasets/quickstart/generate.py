#!/usr/bin/env python3
"""Writes the problems of the quickstart project: problems.jsonl, eval.jsonl, planted.json.

Everything is drawn from one seed, so a second run gives the same bytes:

    python3 generate.py            write the three files
    python3 generate.py --check    compare the three files with what would be written

Before anything is written, every answer is recomputed from the arithmetic that stands
beside it, and the claims of planted.json are measured (`verify_corpus` says which).
Needs Python 3.8 or newer and nothing else.
"""

import argparse
import collections
import json
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

SEED = 20
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


# ------------------------------------------------------------------------------ arithmetic


def bare(family, difficulty, wordings, count, draw):
    """Short problems; `draw` gives (expression as shown, expression to compute, answer)."""
    return {"family": family, "difficulty": difficulty, "wordings": wordings, "count": count, "draw": draw}


def operation(sign, low, high, low2=None, high2=None, keep=lambda a, b: True):
    def draw(rng):
        while True:
            a = rng.randint(low, high)
            b = rng.randint(low2 or low, high2 or high)
            if keep(a, b):
                shown = f"{a} {sign} {b}"
                return shown, f"{a} {sign} {b}"

    return draw


def two_steps(first, second, low, high, low2, high2):
    def draw(rng):
        a, b, c = rng.randint(low, high), rng.randint(low, high), rng.randint(low2, high2)
        shown = f"{a} {first} {b} {second} {c}"
        return shown, shown

    return draw


def division(low, high):
    def draw(rng):
        b, quotient = rng.randint(low, high), rng.randint(low, high)
        return f"{b * quotient} / {b}", f"{b * quotient} / {b}"

    return draw


def fraction_sum(rng):
    b = rng.choice([3, 4, 5, 6, 8, 10])
    d = rng.choice([2, b])
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    return f"{a}/{b} + {c}/{d}", f"Fraction({a},{b}) + Fraction({c},{d})"


def decimal_sum(rng):
    a, b = rng.randint(11, 89), rng.randint(11, 89)
    if a % 10 == 0 or b % 10 == 0 or (a + b) % 10 == 0:
        return decimal_sum(rng)
    return f"{a // 10}.{a % 10} + {b // 10}.{b % 10}", f"Fraction({a},10) + Fraction({b},10)"


def share_of(rng):
    share = rng.choice([10, 20, 25, 50, 75])
    whole = rng.choice([20, 40, 60, 80, 120, 160, 200, 240])
    return f"{share}% of {whole}", f"Fraction({share},100) * {whole}"


def share_asked(rng):
    whole = rng.choice([20, 25, 40, 50, 80])
    share = rng.choice([5, 10, 15, 20, 30, 40, 60])
    part = Fraction(share * whole, 100)
    if part.denominator != 1:
        return share_asked(rng)
    return f"{part} of {whole}", f"Fraction({part},{whole})"


def thousands_sum(rng):
    a, b = rng.randint(10, 48) * 100, rng.randint(11, 49) * 10
    return f"{a:,} + {b}", f"{a} + {b}"


ASK = ["What is {e}?", "Compute {e}.", "What does {e} equal?", "Find the value of {e}."]
ASK_ZH = ["计算：{e} = ？", "{e} 等于多少？", "请算出 {e} 的结果。"]


def arithmetic_families():
    """Families in the order in which this model finds them easy to hard, roughly."""
    return [
        bare("table", 1, ["What is {e}?"], 20, operation("×", 2, 12)),
        bare("table", 1, ["What is {e}?", "Compute {e}."], 16, operation("*", 2, 12)),
        bare("table", 1, ["What is {e}?"], 10, operation("times", 2, 12)),
        bare("add_1", 1, ASK, 22, operation("+", 2, 9)),
        bare("sub_1", 2, ASK[:2], 12, operation("-", 6, 19, 2, 9, lambda a, b: a > b)),
        bare("add_2", 3, ASK[:3], 40, operation("+", 11, 59)),
        bare("mul_add", 3, ASK[:2], 12, two_steps("×", "+", 2, 9, 1, 20)),
        bare("sub_2", 4, ASK[:2], 10, operation("-", 20, 99, 11, 60, lambda a, b: a > b + 9)),
        bare("div", 2, ASK[:2], 14, division(2, 12)),
        bare("mul_2", 4, ASK[:2], 8, operation("×", 11, 19, 3, 9)),
        bare("add_3", 5, ASK[:1], 4, operation("+", 101, 499)),
        bare("fraction", 5, ["What is {e}? Give a fraction."], 4, fraction_sum),
        bare("decimal", 4, ["What is {e}?", "Compute {e}."], 6, decimal_sum),
        bare("percent", 4, ["What is {e}?"], 6, share_of),
        bare("percent", 5, ["What percent is {e}?"], 2, share_asked),
        bare("thousands", 5, ["What is {e}?"], 4, thousands_sum),
        bare("bare_zh", 1, ASK_ZH, 9, operation("×", 2, 9)),
        bare("bare_zh", 2, ASK_ZH, 7, operation("+", 5, 39)),
    ]


def computable(shown):
    return shown.replace("×", "*").replace("times", "*")


def written(value, family, shown):
    """The answer as a reader would write it for this family."""
    if family == "percent" and "%" not in shown:
        return f"{value * 100}%"
    if family == "fraction" or value.denominator == 1:
        return f"{int(value):,}" if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return f"{float(value):g}"


# ---------------------------------------------------------------------------- word problems

NAMES = [
    "Mia", "Omar", "Lena", "Kofi", "Priya", "Jonas", "Aiko", "Rosa", "Tariq", "Elif", "Bruno", "Nadia",
    "Hugo", "Zara", "Ivan", "Chloe", "Samir", "Greta", "Pablo", "Wendy", "Felix", "Amina", "Oscar", "Leila",
]
THINGS = [
    "stickers", "marbles", "shells", "stamps", "buttons", "postcards", "beads", "coins", "badges", "pebbles",
    "crayons", "puzzles", "ribbons", "keys", "cards", "pencils",
]
NAMES_ZH = ["小明", "小红", "李华", "王芳", "张伟", "小丽", "陈晨", "刘洋", "赵敏", "周杰", "小刚", "吴婷", "孙悦", "林涛"]
THINGS_ZH = ["颗弹珠", "张邮票", "本故事书", "支彩笔", "个贝壳", "枚徽章", "块橡皮", "张卡片", "朵纸花", "个气球"]

# (difficulty, text, formula, ranges of the letters). {n}: a name, {o}: a kind of thing.
WORDS_EN = [
    (2, "{n} has {a} {o}. A friend gives {n} {b} more {o}. How many {o} does {n} have now?", "a+b", (3, 12), (2, 9)),
    (2, "There were {a} birds on the roof. Then {b} of them flew away. How many birds stayed on the roof?", "a-b", (8, 19), (2, 7)),
    (2, "{n} packs {a} bags. Each bag gets {b} {o}. How many {o} are packed?", "a*b", (2, 9), (3, 10)),
    (3, "One ticket costs {a} dollars. {n} buys {b} tickets. How many dollars does {n} pay?", "a*b", (4, 12), (2, 7)),
    (4, "A baker makes {a} trays with {b} rolls each, and then {c} more rolls. How many rolls is that?", "a*b+c", (2, 6), (4, 9), (2, 9)),
    (3, "{n} shares {t} {o} equally among {b} children. How many {o} does each child get?", "a", (2, 9), (2, 6)),
    (3, "A bus carries {a} people. At the next stop {b} get off and {c} get on. How many people are on the bus?", "a-b+c", (12, 30), (2, 9), (2, 9)),
    (3, "{n} reads {a} pages on Monday and {b} pages on Tuesday. How many pages is that in all?", "a+b", (11, 40), (11, 40)),
    (2, "A spider has {a} legs. How many legs do {b} spiders have?", "a*b", (8, 8), (2, 9)),
    (4, "{n} had {a} dollars and spent {b} dollars on lunch. How many dollars are left?", "a-b", (20, 60), (6, 19)),
    (3, "A garden has {a} rows of {b} tulips. How many tulips grow there?", "a*b", (3, 12), (3, 12)),
    (4, "{n} earns {a} dollars an hour. After {b} hours {n} also gets a tip of {c} dollars. How many dollars is that?", "a*b+c", (5, 12), (2, 6), (2, 9)),
    (4, "A shop had {a} lamps. It sold {b} in the morning and {c} in the afternoon. How many lamps are unsold?", "a-b-c", (20, 40), (3, 9), (2, 8)),
    (3, "{n} walks {a} km every day. How far does {n} walk in {b} days?", "a*b", (2, 7), (3, 10)),
    (4, "A rope of {a} meters is cut, and {b} meters are used. Give the length in meters that remains.", "a-b", (25, 80), (11, 24)),
    (5, "A class has {a} girls and {b} boys. They form teams of {c}. How many teams are there?", "(a+b)/c", (6, 18), (6, 18), (2, 6)),
    (3, "{n} is {a} years old. How old will {n} be in {b} years?", "a+b", (6, 40), (3, 20)),
    (4, "A tank holds {a} liters. Every minute {b} liters flow out. How many liters are left after {c} minutes?", "a-b*c", (40, 90), (2, 7), (2, 6)),
    (3, "{n} scored {a} points in the first game and {b} in the second. What is the total score?", "a+b", (5, 30), (5, 30)),
    (5, "A jacket costs {a} dollars. It is sold at {b}% off. What is the new price in dollars?", "a-a*b/100", (40, 120), (10, 50)),
    (4, "{n} has {a} {o} and loses {b}. The rest go into {c} equal piles. How many {o} are in one pile?", "(a-b)/c", (12, 40), (2, 9), (2, 5)),
    (3, "Each week has 7 days. How many days are in {a} weeks and {b} days?", "7*a+b", (2, 6), (1, 6)),
]
WORDS_ZH = [
    (2, "{n}有{a}{o}，又买了{b}{o}。{n}现在一共有多少{o}？", "a+b", (3, 15), (2, 12)),
    (2, "树上有{a}只小鸟，飞走了{b}只，还剩下几只？", "a-b", (8, 20), (2, 7)),
    (3, "一盒铅笔有{a}支，{b}盒铅笔共有多少支？", "a*b", (4, 12), (2, 9)),
    (3, "{n}每天跑步{a}千米，{b}天能跑多少千米？", "a*b", (2, 6), (3, 9)),
    (4, "食堂运来{a}袋大米，每袋{b}千克，又运来{c}千克，总共多少千克？", "a*b+c", (2, 6), (5, 10), (3, 9)),
    (3, "公交车上原有{a}人，到站下车{b}人，上车{c}人，车上现有多少人？", "a-b+c", (15, 35), (2, 9), (2, 9)),
    (3, "{n}今年{a}岁，爸爸比{n}大{b}岁，爸爸今年多少岁？", "a+b", (6, 12), (22, 32)),
    (3, "教室里摆了{a}排椅子，每排{b}把，椅子的总数是多少？", "a*b", (3, 9), (4, 10)),
    (4, "{n}带了{a}元，买书花掉{b}元，口袋里还剩多少元？", "a-b", (20, 60), (5, 18)),
    (4, "一根绳子长{a}米，剪成每段{b}米，可以剪成几段？", "a/b", (12, 48), (2, 8)),
    (3, "果园里梨树有{a}棵，桃树的棵数是梨树的{b}倍，桃树有几棵？", "a*b", (6, 15), (2, 5)),
    (3, "第一组做了{a}面小旗，第二组做了{b}面，两组合起来做了多少面？", "a+b", (8, 30), (8, 30)),
    (5, "商店里一件衣服原价{a}元，现在打{b}折，现价是多少元？", "a*b/10", (40, 120), (5, 9)),
]

# The evaluation set speaks of other things than the problems, at greater length.
EVAL_EN = [
    ("During the harvest festival the mayor of {p} hung {a} paper lanterns over the bridge and {b} lanterns around the old fountain; what number of lanterns did the visitors see altogether?", "a+b", (12, 40), (11, 39)),
    ("A lighthouse keeper at {p} climbs a spiral staircase of {a} steps every evening, resting once after exactly {b} steps; calculate how many steps remain after the rest.", "a-b", (60, 99), (15, 45)),
    ("The museum of {p} displays meteorites in {a} glass cabinets, and a curator arranged {b} meteorites in every single cabinet; determine the size of the whole collection.", "a*b", (4, 9), (6, 12)),
    ("When the ferry left {p} it carried {a} cyclists, {b} hikers boarded at the second pier, and nobody went ashore; state the number of passengers aboard afterwards.", "a+b", (14, 48), (12, 40)),
    ("An astronomer near {p} photographed {a} comets each winter for {b} winters and later discovered {c} further comets in archives; how large is her comet catalogue?", "a*b+c", (3, 8), (3, 7), (2, 9)),
    ("Engineers in {p} tested {a} drones at dawn, {b} of those drones failed the wind test; report how many drones were approved for delivery flights.", "a-b", (30, 75), (8, 25)),
    ("The orchestra of {p} rehearses {a} hours on weekdays and {b} hours across the weekend; express the weekly rehearsal time of these musicians in hours.", "5*a+b", (2, 4), (3, 9)),
    ("A glacier research station close to {p} stores {t} ice cores in {b} identical freezers with equal loads; work out how many cores lie in one freezer.", "a", (6, 15), (3, 8)),
    ("Volunteers planted mangroves along the coast of {p}: {a} seedlings before noon, twice as many after noon; what was the count of seedlings at sunset?", "3*a", (15, 60), (1, 1)),
    ("A cinema in {p} sold {a} balcony seats for {b} dollars apiece during the silent film night; give the balcony revenue in dollars.", "a*b", (6, 12), (7, 12)),
    ("The beekeeper of {p} collected {a} jars of heather honey, kept {b} jars for the village fair, then delivered {c} jars to a bakery; how many jars did she still own?", "a-b-c", (40, 70), (8, 19), (5, 16)),
    ("Inside the clock tower of {p} a restorer replaced {a} brass gears per week over {b} weeks; compute the quantity of gears that were replaced in that period.", "a*b", (5, 11), (4, 9)),
]
EVAL_PLACES = ["Aldermoor", "Brightwater", "Castlefen", "Dunmarsh", "Eastholm", "Fernvale", "Gullhaven", "Highcombe", "Ivybridge", "Juniper Bay", "Kestrel Rock", "Larkfield"]
EVAL_ZH = [
    ("航天馆里陈列着{a}枚火箭模型，另外{b}枚正在修复，馆藏火箭模型合计是多少枚？", "a+b", (12, 40), (5, 18)),
    ("考古队在沙漠遗址清理出{a}件陶罐，其中{b}件已经破损，完好的陶罐是几件？", "a-b", (30, 70), (8, 25)),
    ("茶农采摘龙井，清晨装满{a}筐，每筐重{b}千克，清晨采摘的茶叶重多少千克？", "a*b", (4, 9), (6, 12)),
    ("龙舟赛共有{a}条船参加，每条船坐{b}名桨手，外加{c}名裁判，参赛人员总计几名？", "a*b+c", (3, 7), (8, 12), (3, 9)),
    ("灯塔守护员要登{a}级台阶，歇脚以前登了{b}级，余下的台阶是多少级？", "a-b", (60, 99), (15, 45)),
    ("剧院二楼设{a}个包厢，每个包厢容纳{b}位观众，二楼最多容纳几位观众？", "a*b", (5, 12), (4, 8)),
]
EVAL_SHORT = [("What is {a} + {b}?", "a+b", (17, 78), (12, 21)), ("Compute {a} * {b}.", "a*b", (13, 24), (3, 9)), ("What is {a} - {b}?", "a-b", (70, 99), (11, 38))]


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
    for kind in arithmetic_families():
        for index in range(kind["count"]):
            wording = kind["wordings"][index % len(kind["wordings"])]
            for _ in range(2000):
                shown, formula = kind["draw"](rng)
                value = Fraction(evaluate(computable(formula), {}))
                answer = written(value, kind["family"], shown)
                text = wording.format(e=shown)
                if corpus.is_free(text, answer, taken):
                    break
            else:
                continue  # the answers of this wording are used up
            language = "zh" if kind["family"] == "bare_zh" else "en"
            corpus.add(kind["family"], language, kind["difficulty"], text, answer, (computable(formula), {}))
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
    lambda t: t[:-1] + " now?" if t.endswith("?") else t + " Thanks.",
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


# Long texts that differ in one number only, at their first or last word: alike, yet another problem.
TWINS = [
    ("en", "{a} dollars were in the jar that Nora keeps for her holiday, and last night she took out 8 dollars to pay for a kite; how many dollars does the jar hold?", "a-8", (31, 47)),
    ("en", "Every shelf in the village library carries the same number of atlases, namely 9, and the librarian wants to know the number of atlases for a count of shelves equal to {a}", "9*a", (6, 11)),
    ("zh", "{a}位同学报名参加学校春天的植树活动，后来又有6位同学临时加入，参加植树活动的同学最后是多少位？", "a+6", (18, 25)),
]


def plant_number_twins(corpus, planted):
    for language, text, formula, values in TWINS:
        rows = []
        for a in values:
            answer = f"{int(evaluate(formula, {'a': a})):,}"
            rows.append(corpus.add(f"word_{language}", language, 4, text.format(a=a), answer, (formula, {"a": a})))
        planted["number_twins"].append((rows[1], rows[0]))


# Eval texts whose numbers stand so close that no ten tokens in a row are free of one.
EVAL_TWINS = [
    ("In {p}, {a} potters each shaped {b} bowls a day, for {c} days, before {d} bowls cracked; how many whole bowls?", "a*b*c-d", (4, 7, 3, 5), (3, 6, 2, 9)),
    ("Captain Vega counted {a} whales, then {b} seals and {c} otters, but only {d} turtles; how many animals were counted?", "a+b+c+d", (12, 9, 5, 3), (7, 15, 8, 2)),
    ("钟楼有{a}层，每层{b}扇窗，关上{c}扇，开着几扇？", "a*b-c", (6, 8, 11), (5, 9, 13)),
]


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
