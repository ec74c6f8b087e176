"""Writes the problems of this project: sums and differences, solved digit by digit.

    python3 generate.py [--check]

Everything follows from one seed; `--check` says whether the files are those that this program writes. No problem of the
probe set is among those that a model is trained on.
"""

import argparse
import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 17


def digits(number, width):
    return [int(digit) for digit in reversed(str(number).zfill(width))]


def added(first, second):
    """From the last digit to the first, with what is carried."""
    width, carry, lines = max(len(str(first)), len(str(second))), 0, []
    for one, other in zip(digits(first, width), digits(second, width)):
        total = one + other + carry
        lines.append(f"{one}+{other}+{carry}={total}")
        carry = total // 10
    return lines, first + second


def taken(first, second):
    """From the last digit to the first, with what is borrowed; the first number is the larger one."""
    width, borrowed, lines = len(str(first)), 0, []
    for one, other in zip(digits(first, width), digits(second, width)):
        rest = one - other - borrowed
        lines.append(f"{one}-{other}-{borrowed}={rest}")
        borrowed = int(rest < 0)
    return lines, first - second


def problem(sort, first, second):
    sign, (lines, result) = ("+", added(first, second)) if sort == "addition" else ("-", taken(first, second))
    thought = "\n".join(lines)
    return {
        "question": f"{first}{sign}{second}",
        "answer": str(result),
        "solution": f"<think>\n{thought}\n</think>\n\\boxed{{{result}}}",
        "sort": sort,
        "digits": len(str(first)),
    }


def problems(random, count, sort, width):
    low, high = 10 ** (width - 1), 10**width
    seen = set()
    while len(seen) < count:
        first, second = random.randrange(low, high), random.randrange(low, high)
        seen.add((first, second) if sort == "addition" else (max(first, second), min(first, second)))
    return [problem(sort, first, second) for first, second in sorted(seen, key=lambda _: random.random())]


def files():
    chance = random.Random(SEED)
    train, probe = [], []
    for sort in ("addition", "subtraction"):
        for width, for_training, for_probe in ((2, 1400, 40), (3, 600, 20)):
            made = problems(chance, for_training + for_probe, sort, width)
            train += made[:for_training]
            probe += made[for_training:]
    chance.shuffle(train)
    lines = lambda rows: "".join(json.dumps(row) + "\n" for row in rows)
    return {"train.jsonl": lines(train), "probe.jsonl": lines(probe)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    given = parser.parse_args()
    for name, text in files().items():
        path = HERE / name
        if not given.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is not what generate.py writes")


if __name__ == "__main__":
    main()
