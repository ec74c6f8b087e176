"""Text curation beside its peers: speed, memory, and what is found of what was planted.

    python3 bench.py [--megabytes 200] [--peer-megabytes 20] [--rounds 3] [--memory 4096] [--only dedup] [--no-peers]

`make bench` runs it. Every figure is CPU time of whole processes, from Parquet to Parquet, on one thread, the least of
several rounds in which all take turns. *Own work* is the CPU time of a stage less that of reading and writing the same
file in the same rounds (`table_copy`, which has the program's own reader, writer and allocator). Peers work on a smaller
corpus of the same making, since some need an hour for the large one; speeds are per byte of text, so they compare. With
--memory a corpus of that many megabytes (copies of the ordinary one, each with other letters) goes through each of the
three stages, and the peak of memory is shown.
"""

import argparse
import collections
import json
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pipeline"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target")) / "release"

# `answer_text` would be a second copy of a response that has no reasoning block; the files of peers hold each text once
DAG = """
[pipeline]
name = "bench"

[stages.all]
kind = "import"
files = ["corpus.parquet"]
rows = "traces"
domain = "math"
columns = { prompt = "prompt", response = "response", answer_text = "model", model = "model" }

[stages.eval]
kind = "import"
files = ["eval.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", source = "set" }

[stages.repetition]
kind = "filter_repetition"
inputs = "all"

[stages.decontamination]
kind = "decontaminate"
inputs = { rows = "all", eval = "eval" }
column = "response"

[stages.dedup]
kind = "dedup"
inputs = "all"
column = "response"
across = true
"""

JOBS = ["decontamination", "dedup", "repetition"]
PEERS = {
    "decontamination": ["datatrove_decontamination", "python_set"],
    "dedup": ["datatrove_minhash", "datasketch", "rensa"],
    "repetition": ["datatrove_gopher"],
}
# least own work and file to file, MB of text per CPU-second; least ratios to peers, file to file
BARS = {
    "decontamination": (100, 60, {"datatrove_decontamination": 100, "python_set": 10}),
    "dedup": (85, 0, {"datatrove_minhash": 50, "datasketch": 8, "rensa": 3}),
    "repetition": (100, 0, {}),
}


class Cost:
    """CPU seconds, least over rounds; memory in MiB, most over rounds."""

    def __init__(self):
        self.cpu, self.peak = float("inf"), 0.0

    def add(self, cpu, peak):
        self.cpu, self.peak = min(self.cpu, cpu), max(self.peak, peak)


# a process begins with the memory of the one that starts it: this one is small, and tells what its child took
STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[2:], stdout=2, stderr=2)
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file:
    print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, file=file)
"""


def measured(command, threads="1"):
    """Runs a command to its end and gives CPU seconds and peak memory in MiB, those of its children included."""
    environment = os.environ | {"RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile("r") as facts:
        starter = [sys.executable, "-S", "-c", STARTER, facts.name]
        subprocess.run(starter + [str(part) for part in command], stderr=output, env=environment, check=True)
        code, cpu, peak = facts.read().split()
        if code != "0":
            output.seek(0)
            sys.exit(f"{command[0]} failed:\n{output.read().decode(errors='replace')[-3000:]}")
    return float(cpu), float(peak)


def run_stage(folder, name, threads="1"):
    """Runs a stage anew, whatever ran before."""
    for version in (folder / "out" / ".store").glob(f"{name}-*"):
        shutil.rmtree(version)
    (folder / "out" / name).unlink(missing_ok=True)
    return measured([TARGET / "pipeline", "run", folder / "dag.toml", "--only", name, "--jobs", threads], threads)


class Corpus:
    """A corpus on disk, made once, imported once."""

    def __init__(self, megabytes):
        self.folder = CACHE / "bench" / f"corpus-{megabytes:g}"
        stamp = self.folder / "made"
        made_by = (HERE / "corpus.py").read_text()
        if not stamp.exists() or stamp.read_text() != made_by:
            shutil.rmtree(self.folder, ignore_errors=True)
            print(f"making a corpus of {megabytes:g} MB", file=sys.stderr)
            measured([sys.executable, HERE / "corpus.py", self.folder, "--megabytes", megabytes])
            stamp.write_text(made_by)
        self.planted = json.loads((self.folder / "planted.json").read_text())
        self.text = self.planted["text_bytes"] / 1e6
        self.dag = self.folder / "dag.toml"
        self.dag.write_text(DAG)
        measured([TARGET / "pipeline", "run", self.dag, "all", "eval"], "0")
        self.rows = None

    def data(self, stage, folder="data"):
        return sorted((self.folder / "out" / stage / folder).glob("*.parquet"))

    def floor(self):
        target = self.folder / "copy.parquet"
        cost = measured([TARGET / "examples" / "table_copy", target, *self.data("all")])
        target.unlink()
        return cost

    def peer(self, name):
        out = self.folder / "peers" / name
        cost = measured([sys.executable, HERE / "peers.py", name, self.folder, out])
        kept = set()
        for file in out.glob("*.parquet"):
            table = pq.read_table(file)
            column = "row" if "row" in table.column_names else "id"
            kept.update(int(row) for row in table[column].to_pylist())
        shutil.rmtree(out)
        return cost, set(range(self.planted["rows"])) - kept

    def rejected(self, name):
        """Rows that a stage rejected, with reason and evidence."""
        rejected = {}
        for file in self.data(name, "rejects"):
            table = pq.read_table(file, columns=["extra", "reject_reason", "reject_evidence"]).to_pylist()
            for row in table:
                rejected[json.loads(row["extra"])["row"]] = (row["reject_reason"], row["reject_evidence"])
        return rejected

    def steps(self, name):
        """Seconds of each step of a stage's last run, from its manifests."""
        seconds = collections.Counter()
        for file in sorted((self.folder / "out" / name / "manifest").glob("*.json")):
            manifest = json.loads(file.read_text())
            step, _, _ = manifest["task"].rpartition("-")
            seconds[step or "rows"] += manifest["seconds"]
        return seconds

    def notes(self, name):
        return json.loads((self.folder / "out" / name / "_SUCCESS.json").read_text())["notes"]


def share(part, whole):
    return f"{part}/{whole} = {part / whole:.3f}" if whole else "-"


def judge_dedup(planted, rejected):
    near = [pair for pair in planted["near"] if pair[2] >= 0.8]
    far = [pair for pair in planted["near"] if pair[2] < 0.7]
    is_hit = lambda pair: pair[0] in rejected or pair[1] in rejected
    pairs = [row for group in ("near", "exact", "number_twins") for pair in planted[group] for row in pair[:2]]
    found = {"recall at Jaccard >= 0.8": share(sum(map(is_hit, near)), len(near))}
    for sort in sorted({pair[3] for pair in near}):
        some = [pair for pair in near if pair[3] == sort]
        found[f"of these {sort}"] = share(sum(map(is_hit, some)), len(some))
    found["exact copies"] = share(sum(map(is_hit, planted["exact"])), len(planted["exact"]))
    found["below 0.7 merged"] = share(sum(map(is_hit, far)), len(far))
    found["number twins merged"] = share(sum(map(is_hit, planted["number_twins"])), len(planted["number_twins"]))
    found["other rows dropped"] = str(len(set(rejected) - set(pairs)))
    recall = sum(map(is_hit, near)) / max(1, len(near))
    return found, {"recall at Jaccard >= 0.8 is at least 0.99": recall >= 0.99, "none below 0.7 merged": not any(map(is_hit, far))}


def judge_decontamination(planted, rejected):
    by_kind = collections.defaultdict(list)
    for row, kind, _ in planted["contaminated"]:
        by_kind[kind].append(row in rejected)
    rows = {row for row, _, _ in planted["contaminated"]}
    swapped = [row for row, *_ in planted["swapped"]]
    hits = sum(sum(found) for found in by_kind.values())
    found = {"recall": share(hits, len(rows))}
    found |= {kind: share(sum(found), len(found)) for kind, found in by_kind.items()}
    found["precision"] = share(hits, len(rejected))
    found["number-swapped twins rejected"] = share(sum(row in rejected for row in swapped), len(swapped))
    least = {kind: sum(found) / len(found) for kind, found in by_kind.items()}
    bars = {
        "recall is at least 0.98": hits >= 0.98 * len(rows),
        "recall on Chinese is at least 0.97": least["chinese"] >= 0.97,
        "recall in every kind is at least 0.93": min(least.values()) >= 0.93,
        "precision is at least 0.99": hits >= 0.99 * len(rejected),
    }
    return found, bars


def judge_repetition(planted, rejected):
    found, rows = {}, set()
    for group, word in (("loops", "loops found"), ("innocent", "innocent texts rejected")):
        by_kind = collections.defaultdict(list)
        for row, kind in (entry[:2] for entry in planted[group]):
            by_kind[kind].append(row in rejected)
            rows.add(row)
        found |= {f"{word}: {kind}": share(sum(hits), len(hits)) for kind, hits in by_kind.items()}
    found["other rows rejected"] = str(len(set(rejected) - rows))
    every = all(row in rejected for row, *_ in planted["loops"])
    none = not any(row in rejected for row, *_ in planted["innocent"])
    return found, {"every planted loop is found": every, "tables, matrices and case analyses are kept": none}


JUDGES = {"decontamination": judge_decontamination, "dedup": judge_dedup, "repetition": judge_repetition}


def verdict(name, is_met):
    print(f"- {'met' if is_met else 'NOT MET'}: {name}")


def line(*cells):
    print("| " + " | ".join(cells) + " |")


def speeds(given, jobs):
    large = Corpus(given.megabytes)
    small = Corpus(given.peer_megabytes) if given.peers else None
    floor, small_copy = Cost(), Cost()
    ours, peers, removed = collections.defaultdict(Cost), collections.defaultdict(Cost), {}
    for turn in range(given.rounds):
        floor.add(*large.floor())
        for job in jobs:
            ours[job].add(*run_stage(large.folder, job))
        if not small:
            continue
        small_copy.add(*small.peer("copy")[0])
        for job in jobs:
            for peer in PEERS[job]:
                # one round of a slow peer is enough: what disturbs it is small beside it
                if turn == 0 or peers[peer].cpu < 20:
                    cost, removed[peer] = small.peer(peer)
                    peers[peer].add(*cost)
    print(f"\nCorpus: {large.planted['rows']} rows, {large.text:.1f} MB of text; for peers " + (f"{small.text:.1f} MB" if small else "none"))
    print(f"Floor: reading and writing costs {floor.cpu:.2f} CPU s, {large.text / floor.cpu:.0f} MB per CPU-second, {floor.peak:.0f} MiB\n")
    line("job", "tool", "CPU s", "own work MB/CPU-s", "file to file MB/CPU-s", "ours is faster by", "peak MiB")
    line(*["---"] * 7)
    for job in jobs:
        cost = ours[job]
        speed = large.text / cost.cpu
        line(job, "ours", f"{cost.cpu:.2f}", f"{large.text / max(1e-9, cost.cpu - floor.cpu):.0f}", f"{speed:.1f}", "", f"{cost.peak:.0f}")
        for peer in PEERS[job] if small else []:
            other = peers[peer]
            own = small.text / max(1e-9, other.cpu - small_copy.cpu)
            theirs = small.text / other.cpu
            line(job, peer, f"{other.cpu:.2f}", f"{own:.2f}", f"{theirs:.2f}", f"{speed / theirs:.1f}", f"{other.peak:.0f}")
    print("\nWhere the time goes, wall time of one thread in the last round:\n")
    for job in jobs:
        seconds = large.steps(job)
        parts = ", ".join(f"{step} {share:.0%}" for step, share in ((step, spent / seconds.total()) for step, spent in seconds.items()))
        print(f"- {job}: {parts} of {seconds.total() / floor.cpu:.1f} times the floor")
    for job in jobs:
        print(f"\n### {job}: what was found\n")
        results = {"ours": JUDGES[job](large.planted, large.rejected(job))}
        for peer in PEERS[job] if small else []:
            results[peer] = JUDGES[job](small.planted, removed[peer])
        line("", *results)
        line(*["---"] * (len(results) + 1))
        for key in results["ours"][0]:
            line(key, *(found.get(key, "-") for found, _ in results.values()))
        print()
        own, whole, ratios = BARS[job]
        cost = ours[job]
        verdict(f"own work at least {own} MB per CPU-second", large.text / max(1e-9, cost.cpu - floor.cpu) >= own)
        if whole:
            verdict(f"file to file at least {whole} MB per CPU-second", large.text / cost.cpu >= whole)
        for peer, least in ratios.items() if small else []:
            verdict(f"at least {least} x {peer}", large.text / cost.cpu >= least * small.text / peers[peer].cpu)
        if job == "dedup":
            verdict("at most 512 MiB of memory for 200 MB of text", cost.peak <= 512)
        for name, is_met in results["ours"][1].items():
            verdict(name, is_met)
        if "swapped" in large.planted and job == "decontamination":
            print(f"- notes of the run: {json.dumps(large.notes(job), ensure_ascii=False)[:1200]}")


def ciphers(copies):
    """A substitution of letters and Han characters for each copy of a corpus: other words, the same repetitions."""
    for copy in range(copies):
        letters = list(string.ascii_lowercase)
        random.Random(copy).shuffle(letters)
        table = {} if copy == 0 else str.maketrans(string.ascii_letters, "".join(letters) + "".join(letters).upper())
        first, count = 0x4E00, 0x9FFF - 0x4E00 + 1
        table |= {first + at: first + (at + 997 * copy) % count for at in range(count)}
        yield table


def enlarged(given):
    """Folder of a corpus of many copies of the ordinary one, each enciphered otherwise, imported."""
    base, folder = Corpus(given.megabytes), CACHE / "bench" / f"copies-{given.memory:g}"
    stamp, made_by = folder / "made", (HERE / "corpus.py").read_text() + str(given.megabytes)
    if not stamp.exists() or stamp.read_text() != made_by:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = pq.ParquetFile(base.folder / "corpus.parquet")
        with pq.ParquetWriter(folder / "corpus.parquet", source.schema_arrow, compression="zstd", compression_level=1) as file:
            for number, table in enumerate(ciphers(round(given.memory / base.text))):
                for batch in source.iter_batches(1000):
                    texts = [text.translate(table) for text in batch["response"].to_pylist()]
                    prompts = [f"{number}: {prompt}" for prompt in batch["prompt"].to_pylist()]
                    rows = [number * base.planted["rows"] + row for row in batch["row"].to_pylist()]
                    columns = {"prompt": prompts, "response": texts, "model": batch["model"], "row": rows}
                    file.write_table(pa.table([columns[name] for name in source.schema_arrow.names], schema=source.schema_arrow))
        shutil.copy(base.folder / "eval.jsonl", folder)
        stamp.write_text(made_by)
    (folder / "dag.toml").write_text(DAG)
    measured([TARGET / "pipeline", "run", folder / "dag.toml", "all", "eval"], "0")
    return folder


def memory(given, jobs):
    folder = enlarged(given)
    facts = pq.ParquetFile(folder / "corpus.parquet").metadata
    texts = sum(facts.row_group(at).column(1).total_uncompressed_size for at in range(facts.num_row_groups))
    print(f"\nMemory: {texts / 1e9:.2f} GB of text, {facts.num_rows} rows, two threads\n")
    for job in jobs:
        cpu, peak = run_stage(folder, job, "2")
        counts = json.loads((folder / "out" / job / "_SUCCESS.json").read_text())["counts"]
        rejected = sum(counts["rejected"].values())
        verdict(f"{job}: {peak:.0f} MiB of at most 1,536 MiB, {texts / 1e6 / cpu:.0f} MB per CPU-second, {rejected} rejected", peak <= 1536)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--peer-megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=float, help="megabytes of a corpus that only memory is measured on")
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    given = parser.parse_args()
    jobs = given.only or JOBS
    if given.memory:
        memory(given, jobs)
    else:
        speeds(given, jobs)


if __name__ == "__main__":
    main()
