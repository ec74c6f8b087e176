"""Makes the corpus of the curation benchmark: texts of 6 KB on average with planted items of every kind.

    python3 corpus.py FOLDER --megabytes 200 [--seed 17]

writes FOLDER/corpus.parquet (one trace a row: prompt, response, model, row), FOLDER/eval.jsonl (evaluation items) and
FOLDER/planted.json (what was planted where). The same arguments give the same bytes. Everything is invented from word
lists and templates here; nothing is taken from any data set.

Planted for near-duplicate search: copies with replaced words and a known Jaccard index of their 5-word shingles, exact
copies, copies with other numbers. For decontamination: evaluation items in every disguise that the table of results
names, and number-swapped twins. For the repetition filter: loops of four kinds, and texts that look like loops to a
careless rule (tables, matrices, careful case analyses).
"""

import argparse
import itertools
import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MATHS = """the of a and to we is that in for it with as be this from by are then so which let has have one can if on
not at two number since all each value therefore given first equal find sum any term set point line both sides how many
there must hence suppose more than least integer function between when side angle triangle circle square length area
prime factor even odd divide product ratio digit digits positive real root roots equation solution solve case step
steps show proof claim lemma follows because thus where while into only every after before below above other same
second third next last total left right half equals plus minus times over under most minimum maximum bound limit series
sequence graph edge vertex path tree matrix vector space plane parallel tangent chord radius centre median base height
volume surface cube sphere probability chance event outcome sample mean average median mode variance count ways choose
order pairs permutation combination subset element union modulo remainder quotient divisor multiple power exponent
logarithm polynomial coefficient degree linear quadratic constant variable parameter integral derivative rate slope
intercept axis symmetric inverse identity group ring field map image domain range continuous bounded interval open
closed finite infinite convergent distance speed hour minute train boat river price cost profit apples pens boxes books
tickets coins marbles children teacher garden market farmer worker machine water tank pipe hours days week month year""".split()
VERBS = "compute determine evaluate simplify find calculate estimate derive".split()
NAMES = "Anna Boris Chloe Dmitri Eva Farid Grace Hugo Ines Jonas Karin Liam Mona Nils Olga Pavel Rosa Sven".split()
CODE_VERBS = "load parse merge count filter build update check find split join sort map reduce scan emit".split()


def zipf(words):
    return list(itertools.accumulate(1.0 / (rank + 2.7) for rank in range(len(words))))


class Vocabulary:
    """Words of an invented language over real ones, and Chinese words of one or two characters."""

    def __init__(self, rng):
        starts = "b br c cl d dr f fl g gr h j k l m n p pr qu r s st t tr v w".split()
        middles = "a e i o u ai ea ou io".split()
        ends = "l n r s t nd rt st m ck".split()
        invented = set()
        while len(invented) < 6000:
            parts = rng.randint(1, 3)
            word = "".join(rng.choice(starts) + rng.choice(middles) for _ in range(parts)) + rng.choice(ends)
            invented.add(word)
        self.fresh = sorted(invented)[:2000]
        rare = sorted(invented)[2000:]
        rng.shuffle(rare)
        self.words = list(dict.fromkeys(MATHS)) + rare
        self.weights = zipf(self.words)
        characters = [chr(code) for code in rng.sample(range(0x4E00, 0x8FFF), 2400)]
        self.han = characters[:400] + ["".join(rng.sample(characters, 2)) for _ in range(4000)]
        self.han_weights = zipf(self.han)
        self.fresh_han = characters[2000:]


class Writer:
    """Texts of the four sorts."""

    def __init__(self, rng, vocabulary):
        self.rng = rng
        self.vocabulary = vocabulary

    def size(self):
        """Bytes of a text: 6 KB on average, from half a KB to 30 KB."""
        return int(min(30000, max(600, self.rng.lognormvariate(8.53, 0.6))))

    def sentence(self, least=8, most=24, formulas=0.0):
        rng, vocabulary = self.rng, self.vocabulary
        words = rng.choices(vocabulary.words, cum_weights=vocabulary.weights, k=rng.randint(least, most))
        if rng.random() < 0.4:
            words[rng.randrange(len(words))] = str(rng.randint(2, 999))
        if formulas and rng.random() < formulas:
            words[rng.randrange(len(words))] = self.formula()
        words[0] = words[0].capitalize()
        return " ".join(words) + rng.choice([".", ".", ".", ".", ":", "?", "!"])

    def term(self):
        rng = self.rng
        pick = rng.random()
        if pick < 0.25:
            return f"\\frac{{{rng.randint(1, 99)}}}{{{rng.randint(2, 99)}}}"
        if pick < 0.5:
            return f"{rng.randint(2, 99)}{rng.choice('xyznkm')}^{rng.randint(2, 9)}"
        if pick < 0.75:
            return f"{rng.choice('xyznabc')}_{{{rng.randint(0, 30)}}}"
        return f"\\sqrt{{{rng.randint(2, 400)}{rng.choice('xyz')}}}"

    def formula(self):
        rng = self.rng
        parts = [self.term()]
        for _ in range(rng.randint(1, 3)):
            parts += [rng.choice(["+", "-", "\\cdot", "="]), self.term()]
        return "$" + " ".join(parts) + "$"

    def prose(self, size, formulas=0.15):
        text, paragraph = [], []
        length = 0
        while length < size:
            paragraph.append(self.sentence(formulas=formulas))
            length += len(paragraph[-1]) + 1
            if len(paragraph) >= 6:
                text.append(" ".join(paragraph))
                paragraph = []
        return "\n\n".join(text + [" ".join(paragraph)])

    def latex(self, size):
        text, length = [], 0
        while length < size:
            text.append(self.sentence(5, 14, 0.6))
            rows = " \\\\ ".join(f"{self.term()} &= {self.term()} + {self.term()}" for _ in range(self.rng.randint(1, 4)))
            text.append(f"\\begin{{align*}} {rows} \\end{{align*}}")
            length += len(text[-1]) + len(text[-2])
        return "\n".join(text)

    def identifier(self):
        return self.rng.choice(CODE_VERBS) + "_" + self.rng.choice(self.vocabulary.words[200:])

    def code(self, size):
        rng, text, length = self.rng, [], 0
        while length < size:
            name, argument, local = self.identifier(), rng.choice(self.vocabulary.words[150:900]), self.identifier()
            lines = [f"def {name}({argument}, {local}={rng.randint(0, 99)}):", f'    """{self.sentence(4, 10)}"""']
            for _ in range(rng.randint(2, 7)):
                lines.append(
                    rng.choice(
                        [
                            f"    {self.identifier()} = {argument}[{rng.randint(0, 40)}] + {self.identifier()}",
                            f"    for {rng.choice('ijk')} in range({rng.randint(2, 500)}):\n        {self.identifier()}({argument})",
                            f"    if {local} > {rng.randint(0, 999)}:\n        {local} -= {self.identifier()}({rng.randint(1, 9)})",
                            f"    {self.identifier()}.append(({argument}, {local} * {rng.randint(2, 77)}))",
                        ]
                    )
                )
            lines.append(f"    return {local}\n\n")
            text.append("\n".join(lines))
            length += len(text[-1])
        return "".join(text)

    def chinese_sentence(self, least=8, most=20):
        rng, vocabulary = self.rng, self.vocabulary
        words = rng.choices(vocabulary.han, cum_weights=vocabulary.han_weights, k=rng.randint(least, most))
        if rng.random() < 0.4:
            words[rng.randrange(len(words))] = str(rng.randint(2, 999))
        if len(words) > 10:
            words.insert(len(words) // 2, "，")
        return "".join(words) + rng.choice(["。", "。", "。", "？"])

    def chinese(self, size):
        text, length = [], 0
        while length < size // 3:
            text.append(self.chinese_sentence())
            length += len(text[-1])
            if len(text) % 8 == 0:
                text.append("\n")
        return "".join(text)

    def any(self, size):
        pick = self.rng.random()
        if pick < 0.45:
            return self.prose(size)
        if pick < 0.65:
            return self.latex(size)
        return self.code(size) if pick < 0.8 else self.chinese(size)


TOKENS = re.compile(r"[A-Za-z]+|[0-9]+|[\u4e00-\u9fff]")


def shingles(text):
    tokens = TOKENS.findall(text.lower())
    return {tuple(tokens[at : at + 5]) for at in range(len(tokens) - 4)}


def jaccard(one, two):
    first, second = shingles(one), shingles(two)
    return len(first & second) / len(first | second)


def bare(text):
    """LaTeX without its commands: what near-duplicates of formulas are measured by."""
    return re.sub(r"\\(?:begin|end)\{[^}]*\}|\\[a-zA-Z]+", " ", text)


def altered(writer, text, target):
    """A copy with as many words replaced, far apart, as give about the wanted Jaccard index; numbers stay."""
    rng, vocabulary = writer.rng, writer.vocabulary
    tokens = list(TOKENS.finditer(text))
    wanted = max(1, round((len(tokens) - 4) * (1 - target) / (5 * (1 + target))))
    # a word in the place of a variable would take the number before it in: `54x` is 54 and x, `54word` is one word; and
    # names of LaTeX environments are no words
    is_free = lambda at: text[at - 1] not in "\\0123456789" and not text.endswith(("\\begin{", "\\end{"), max(0, at - 7), at)
    places = [at for at, token in enumerate(tokens) if not token[0].isdigit() and is_free(token.start())]
    # one word for each stretch of the text, so that no two replaced words share a shingle more often than they must
    chosen, stretch = [], len(places) / wanted
    for number in range(wanted):
        low, high = int(number * stretch), max(int(number * stretch) + 1, int((number + 1) * stretch) - 5)
        chosen.append(places[min(len(places) - 1, rng.randrange(low, high))])
    parts, last = [], 0
    for at in sorted(set(chosen)):
        token = tokens[at]
        # a variable becomes another: a word among formulas is as many variables as it has letters
        is_han, is_letter = token[0] > "\u4dff", len(token[0]) == 1
        fresh = vocabulary.fresh_han if is_han else "jqvwJQVW" if is_letter else vocabulary.fresh
        parts += [text[last : token.start()], rng.choice(fresh)]
        last = token.end()
    return "".join(parts) + text[last:]


def other_numbers(rng, text):
    return re.sub(r"\d+", lambda number: str(int(number[0]) + rng.randint(1, 60)), text)


class Items:
    """Evaluation items, and each of them in disguise."""

    def __init__(self, writer, scale):
        self.writer, self.items = writer, []
        for name, make, count in [
            ("words", self.words, 1100),
            ("latex", self.latex, 500),
            ("code", self.code, 300),
            ("chinese", self.chinese, 400),
        ]:
            for _ in range(max(40, int(count * scale))):
                self.items.append({"id": f"{name}-{len(self.items)}", "set": name, "question": make()})
        self.unused = {name: [item for item in self.items if item["set"] == name] for name in ("words", "latex", "code", "chinese")}

    def words(self):
        writer, rng = self.writer, self.writer.rng
        people = rng.sample(NAMES, 2)
        parts = [f"{people[0]} has {rng.randint(3, 400)} {rng.choice(writer.vocabulary.words[200:])}s."]
        parts += [writer.sentence(10, 18) for _ in range(rng.randint(2, 4))]
        parts.append(f"If {people[1]} takes {rng.randint(2, 90)} of them, {rng.choice(VERBS)} how many are left for {people[0]}.")
        return " ".join(parts)

    def latex(self):
        writer, rng = self.writer, self.writer.rng
        system = " \\\\ ".join(f"\\dfrac{{{rng.randint(2, 99)}}}{{{rng.randint(2, 99)}}}x + {rng.randint(2, 60)}y^{rng.randint(2, 5)} &= {writer.term()}" for _ in range(2))
        return (
            f"{rng.choice(VERBS).capitalize()} the value of {writer.formula()} where \\left( {writer.term()} + {writer.term()} \\right) "
            f"{writer.sentence(8, 14)} It is known that \\[ \\begin{{aligned}} {system} \\end{{aligned}} \\] {writer.sentence(8, 14)}"
        )

    def code(self):
        writer = self.writer
        return writer.code(420).strip()

    def chinese(self):
        writer, rng = self.writer, self.writer.rng
        return "".join(writer.chinese_sentence(8, 16) for _ in range(rng.randint(3, 5))) + f"一共有{rng.randint(2, 999)}个，求结果。"

    def take(self, name):
        return self.unused[name].pop()

    def disguised(self, kind):
        """An item and how it appears in a text."""
        rng = self.writer.rng
        sets = {"latex variant": "latex", "code": "code", "chinese": "chinese"}
        item = self.take(sets.get(kind, "words"))
        text = item["question"]
        if kind == "re-wrapped":
            words = text.split()
            text = "\n".join(" ".join(words[at : at + 8]) for at in range(0, len(words), 8))
        elif kind == "re-punctuated":
            text = re.sub(r"[.,:?!]", "", text)
            words = text.split()
            text = " ".join(word + rng.choice(["", "", "", ",", ";", " -", "…"]) for word in words).upper()
        elif kind == "latex variant":
            text = text.replace("\\dfrac", "\\frac").replace("\\left(", "(").replace("\\right)", ")")
            text = text.replace(" + ", "+").replace(" = ", " \\,=\\, ").replace("aligned", "align*").replace("{", "{ ", 1)
        elif kind == "60 % prefix":
            words = text.split()
            text = " ".join(words[: -(-len(words) * 62 // 100)])
        return item, text


def loops(writer, kind, size):
    rng = writer.rng
    if kind == "tail":
        phrase = " ".join(writer.sentence(6, 14) for _ in range(rng.randint(1, 3))) + " "
        return writer.prose(size // 2) + "\n\n" + phrase * max(4, size // (2 * len(phrase)))
    if kind == "lines":
        line = writer.sentence(5, 12, 0.5) + "\n"
        return writer.prose(size // 3) + "\n\n" + line * max(12, size // (3 * len(line))) + writer.prose(size // 3)
    if kind == "short phrase":
        phrase = " ".join(rng.choices(writer.vocabulary.words[:300], k=rng.randint(1, 3))) + " "
        return writer.prose(size // 2) + " " + phrase * max(60, size // (2 * len(phrase)))
    phrase = writer.chinese_sentence(6, 14)
    return writer.chinese(size // 2) + phrase * max(8, size // (6 * len(phrase)))


def innocent(writer, kind, size):
    rng, rows, length = writer.rng, [], 0
    if kind == "table":
        columns = rng.randint(3, 6)
        rows.append("| " + " | ".join(rng.choices(writer.vocabulary.words, k=columns)) + " |\n|" + "---|" * columns)
        while length < size:
            rows.append("| " + " | ".join(str(rng.randint(0, 9999)) for _ in range(columns)) + " |")
            length += len(rows[-1])
    elif kind == "matrix":
        while length < size // 2:
            side = rng.randint(4, 9)
            body = " \\\\ ".join(" & ".join(rng.choice("01") for _ in range(side)) for _ in range(side))
            rows.append(f"{writer.sentence(5, 12)}\n\\[ \\begin{{pmatrix}} {body} \\end{{pmatrix}} \\]\n{writer.sentence(9, 20)}")
            length += len(rows[-1])
    else:
        modulus = rng.choice([7, 11, 13, 17])
        for case in range(size // 220):
            square, other = case * case % modulus, rng.randint(2, 60)
            rows.append(
                f"Case {case + 1}: suppose that $n \\equiv {case} \\pmod{{{modulus}}}$. Then $n^2 \\equiv {square}$, so $n^2 + {other} "
                f"\\equiv {(square + other) % modulus}$, and {writer.sentence(6, 16)} This case is {'possible' if (square + other) % modulus == 0 else 'impossible'}."
            )
    return "\n".join(rows)


DISGUISES = ["exact", "re-wrapped", "re-punctuated", "latex variant", "60 % prefix", "in long text", "code", "chinese"]
LOOPS = ["tail", "lines", "short phrase", "chinese"]
INNOCENT = ["table", "matrix", "cases"]


class Corpus:
    """Rows in the order in which they are written; partners of a planted pair may stand far apart."""

    def __init__(self, folder, megabytes, seed):
        self.rng = random.Random(seed)
        self.writer = Writer(self.rng, Vocabulary(self.rng))
        self.scale = megabytes / 200
        self.items = Items(self.writer, self.scale)
        self.target = int(megabytes * 1e6)
        self.pool, self.rows, self.written, self.text_bytes = [], [], 0, 0
        self.planted = {"near": {}, "exact": {}, "number_twins": {}, "contaminated": [], "swapped": [], "loops": [], "innocent": []}
        schema = pa.schema([("prompt", pa.string()), ("response", pa.string()), ("model", pa.string()), ("row", pa.int64())])
        self.schema = schema
        self.file = pq.ParquetWriter(folder / "corpus.parquet", schema, compression="zstd", use_dictionary=False)

    def count(self, for_200_megabytes):
        return max(4, int(for_200_megabytes * self.scale))

    def plans(self):
        """What is to be planted, mixed evenly over the corpus."""
        plans = []
        for number in range(self.count(1600)):
            plans.append(("near", self.rng.uniform(0.805, 0.985), number))
        for number in range(self.count(400)):
            plans.append(("near", self.rng.uniform(0.45, 0.68), number))
        plans += [("exact", None, None)] * self.count(300)
        plans += [("number_twins", None, None)] * self.count(200)
        plans += [("contaminated", kind, None) for kind in DISGUISES for _ in range(self.count(150))]
        plans += [("swapped", None, None)] * self.count(150)
        plans += [("loops", kind, None) for kind in LOOPS for _ in range(self.count(100))]
        plans += [("innocent", kind, None) for kind in INNOCENT for _ in range(self.count(100))]
        self.rng.shuffle(plans)
        return plans

    def plant(self, plan):
        kind, detail, number = plan
        writer, rng = self.writer, self.rng
        size = writer.size()
        if kind in ("near", "exact", "number_twins"):
            pair = len(self.planted[kind])
            if kind == "near":
                size = max(size, 1500)
                sort = ["prose", "prose", "prose", "latex", "code", "chinese"][number % 6]
                text = writer.prose(size, 0.0) if sort == "prose" else getattr(writer, sort)(size)
                copy = altered(writer, text, detail)
                index = jaccard(bare(text), bare(copy)) if sort == "latex" else jaccard(text, copy)
                if 0.7 <= index < (0.8 if sort == "prose" else 0.83):
                    return
                if number % 3 == 0 and sort != "code":
                    copy = re.sub(r" +", lambda _: rng.choice([" ", " ", " ", "\n", "  "]), copy)
                record = [None, None, round(index, 4), sort]
            elif kind == "exact":
                text = copy = writer.any(size)
                record = [None, None]
            else:
                text = writer.prose(max(size, 1500), 0.0)
                copy = other_numbers(rng, text)
                record = [None, None]
            self.planted[kind][pair] = record
            self.rows.append((text, (kind, pair, 0)))
            self.pool.append((copy, (kind, pair, 1)))
        elif kind in ("contaminated", "swapped"):
            item, text = self.items.disguised(detail if kind == "contaminated" else "exact")
            if kind == "swapped":
                text = other_numbers(rng, text)
            body = writer.chinese if detail == "chinese" else writer.code if detail == "code" else writer.prose
            before = body(2 * size) if detail == "in long text" else writer.sentence() if detail != "code" else ""
            self.rows.append((f"{before}\n{text}\n{body(size)}", (kind, detail, item["id"])))
        elif kind == "loops":
            self.rows.append((loops(writer, detail, size), (kind, detail, None)))
        else:
            self.rows.append((innocent(writer, detail, size), (kind, detail, None)))

    def flush(self):
        self.rng.shuffle(self.rows)
        texts = []
        for text, mark in self.rows:
            row = self.written + len(texts)
            texts.append(text)
            if mark is None:
                continue
            kind, one, two = mark
            if kind in ("near", "exact", "number_twins"):
                self.planted[kind][one][two] = row
            else:
                self.planted[kind].append([row, one, two] if two else [row, one])
        numbers = range(self.written, self.written + len(texts))
        prompts = [f"Answer number {number} of this corpus." for number in numbers]
        table = pa.table([prompts, texts, ["none"] * len(texts), list(numbers)], schema=self.schema)
        self.file.write_table(table)
        self.written += len(texts)
        self.text_bytes += sum(len(text.encode()) for text in texts)
        self.rows = []

    def make(self):
        plans = self.plans()
        total = len(plans)
        block = 2000
        while self.text_bytes < self.target or plans or self.pool:
            share = min(1.0, (self.text_bytes + 6100 * block) / self.target)
            while plans and len(plans) > total * (1 - share):
                self.plant(plans.pop())
            # a partner comes in this block or in one of the next
            self.rng.shuffle(self.pool)
            keep = 0 if not plans else len(self.pool) // 2
            self.rows += self.pool[keep:]
            del self.pool[keep:]
            while len(self.rows) < block and self.text_bytes + 6100 * len(self.rows) < self.target:
                self.rows.append((self.writer.any(self.writer.size()), None))
            self.flush()
        self.file.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--seed", type=int, default=17)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(given.folder, given.megabytes, given.seed)
    corpus.make()
    with open(given.folder / "eval.jsonl", "w", encoding="utf-8") as file:
        for item in corpus.items.items:
            file.write(json.dumps({**item, "answer": ""}, ensure_ascii=False) + "\n")
    planted = {name: list(value.values()) if isinstance(value, dict) else value for name, value in corpus.planted.items()}
    planted |= {"rows": corpus.written, "text_bytes": corpus.text_bytes}
    (given.folder / "planted.json").write_text(json.dumps(planted))
    print(f"{corpus.written} rows, {corpus.text_bytes / 1e6:.1f} MB of text")


if __name__ == "__main__":
    main()
