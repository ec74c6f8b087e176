#!/usr/bin/env python3
"""Confusion tables of the case sets, misses listed, and speeds; math-verify beside ours on the same cases.

    python3 tests/tools/verification_report.py [CASES] [--ours-only]

CASES is a folder with `math_variants.jsonl`, `math_equivalence.jsonl`, `ifeval.jsonl` and `sandbox.jsonl` (default `../shared/cases`). Ours is
`cargo run --release -p stage-verify --example report`. math-verify 0.9.0 comes from PyPI into a virtual
environment in the user's cache and is called as its README says: `parse` on both sides, then
`verify(gold, answer)`, with its own time-outs; bare answers are put in a box, the usage that its authors
advise; what counts is processor time. It judges the sets of mathematics only. In the set `sandbox` a case at its expected
verdict or at one that is as good counts as true, "positive" is "accepted", and the rate leaves out the processes of the programs.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pipeline"
PACKAGES = ["math-verify==0.9.0", "latex2sympy2_extended==1.11.0", "antlr4-python3-runtime==4.13.2"]
PEER = CACHE / "venv-math-verify-0.9.0"
SETS = ["math_variants", "math_equivalence"]


def peer_python():
    python = PEER / "bin/python"
    if not (PEER / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True)
        (PEER / "ready").write_text("\n".join(PACKAGES))
    return python


def judge_with_peer(folder):
    """Runs inside the virtual environment: one line of JSON a set."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify
    import logging

    logging.disable(logging.CRITICAL)
    both = (LatexExtractionConfig(), ExprExtractionConfig())
    configurations = {"latex": (LatexExtractionConfig(),), "expr": (ExprExtractionConfig(),), "latex+expr": both,
                      "answer": both, "response": both, "option_letter": (StringExtractionConfig(),)}

    def judged(case):
        mode, options = case["mode"], case.get("opts") or {}
        gold, answer = case["gold"], case["pred"]
        if mode == "response":
            answer = answer.rpartition("</think>")[2]
        if mode in ("answer", "response") and "boxed" not in gold:
            gold = "\\boxed{" + gold + "}"
        if mode == "answer" and "boxed" not in answer:
            answer = "\\boxed{" + answer + "}"
        extraction = configurations[mode]
        try:
            return bool(verify(parse(gold, extraction), parse(answer, extraction),
                               float_rounding=int(options.get("precision", 6))))
        except Exception:  # a time-out or a fault of the tool is no pass
            return False

    for name in SETS:
        cases = [json.loads(line) for line in open(Path(folder) / f"{name}.jsonl")]
        counts = {"true_positive": 0, "false_positive": 0, "false_negative": 0, "true_negative": 0}
        times, misses = [], []
        judged(cases[0])  # imports and grammars are not measured
        for case in cases:
            begin = time.process_time()
            found = judged(case)
            times.append((time.process_time() - begin) * 1e3)
            right = found == case["expected"]
            counts[("true_" if right else "false_") + ("positive" if found else "negative")] += 1
            if not right:
                misses.append({key: case[key] for key in ("id", "kind", "gold", "pred", "expected")})
        times.sort()
        print(json.dumps({"set": name, "n": len(cases), **counts, "per_cpu_second": 1e3 * len(times) / sum(times),
                          "p50_ms": times[len(times) // 2], "p99_ms": times[int(len(times) * 0.99)],
                          "max_ms": times[-1], "misses": misses}), flush=True)


def share(above, below):
    return above / below if below else float("nan")


def show(who, row):
    tp, fp, fn, tn = (row[key] for key in ("true_positive", "false_positive", "false_negative", "true_negative"))
    print(f"| {row['set']} | {who} | {row['n']} | {tp} | {fp} | {fn} | {tn} | {share(tp, tp + fp):.4f} | {share(tp, tp + fn):.4f} | "
          f"{share(tp + tn, row['n']):.4f} | {row['per_cpu_second']:,.0f} | {row['p50_ms']:.3f} | {row['p99_ms']:.3f} | {row['max_ms']:.3f} |")


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    folder = Path(arguments[0] if arguments else ROOT / "../shared/cases").resolve()
    if "--peer" in sys.argv:
        return judge_with_peer(folder)
    command = ["cargo", "run", "--release", "--quiet", "-p", "stage-verify", "--example", "report", "--", str(folder)]
    ours = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    results = [("ours", json.loads(line)) for line in ours.splitlines()]
    if "--ours-only" not in sys.argv:
        run = [str(peer_python()), __file__, str(folder), "--peer"]
        peer = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        results += [("math-verify 0.9.0", json.loads(line)) for line in peer.splitlines()]
    print("| set | verifier | n | TP | FP | FN | TN | precision | recall | accuracy | verdicts per CPU-second | p50 ms | p99 ms | max ms |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for who, row in sorted(results, key=lambda result: result[1]["set"]):
        show(who, row)
    print("\nMisses of ours:")
    for who, row in results:
        for miss in row["misses"] if who == "ours" and row["set"] != "both" else []:
            print(f"  {miss['id']} {miss['kind']}: gold {miss['gold']!r} answer {miss['pred'][-120:]!r} expected {miss['expected']}, "
                  f"found {miss['verdict']} ({miss['reason']})")
    if not any(row["misses"] for who, row in results if who == "ours"):
        print("  none")


if __name__ == "__main__":
    main()
