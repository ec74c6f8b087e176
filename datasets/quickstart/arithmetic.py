"""Bare arithmetic for generate.py: one entry a family, from easy to hard.

Which of it the model can do was tried out: tables up to 12 and sums of one digit mostly, sums of
two digits now and then, the rest hardly ever. Much easy and little hard gives a spread of pass
rates.
"""

from fractions import Fraction


def bare(family, difficulty, wordings, count, draw):
    """A family of short problems; `draw` gives the expression as shown and as Python computes it."""
    return {"family": family, "difficulty": difficulty, "wordings": wordings, "count": count, "draw": draw}


def computable(shown):
    return shown.replace("×", "*").replace("times", "*")


def operation(sign, low, high, low2=None, high2=None, keep=lambda a, b: True):
    def draw(rng):
        while True:
            a = rng.randint(low, high)
            b = rng.randint(low2 or low, high2 or high)
            if keep(a, b):
                shown = f"{a} {sign} {b}"
                return shown, computable(shown)

    return draw


def two_steps(first, second, low, high, low2, high2):
    def draw(rng):
        a, b, c = rng.randint(low, high), rng.randint(low, high), rng.randint(low2, high2)
        shown = f"{a} {first} {b} {second} {c}"
        return shown, computable(shown)

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


def families():
    """All families; the count of one is what is tried for, as answers repeat within a wording."""
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


def written(value, family, shown):
    """The answer as a reader would write it for this family."""
    if family == "percent" and "%" not in shown:
        return f"{value * 100}%"
    if family == "fraction" or value.denominator == 1:
        return f"{int(value):,}" if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return f"{float(value):g}"
