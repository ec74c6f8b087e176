"""Loads an exported folder as its readers do, and holds them against each other.

Usage: python check_export.py FOLDER ROWS

`datasets`, `polars` and `pyarrow` must each give ROWS rows with the same values, conversations must have the shape that
trainers read, and the card's header must be one that `huggingface_hub` accepts. Prints `N rows ok`; anything else is a
non-zero exit with the reason on standard error. Nothing is fetched.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
CACHE = tempfile.TemporaryDirectory(prefix="export-check-")
os.environ["HF_HOME"] = CACHE.name

import datasets  # noqa: E402
import polars  # noqa: E402
import pyarrow.parquet  # noqa: E402
from huggingface_hub import DatasetCard  # noqa: E402

ROLES = {"system", "user", "assistant", "tool"}
CONVERSATIONS = ("messages", "prompt", "completion")


class Mismatch(Exception):
    """What the readers do not agree on."""


def need(condition, message):
    if not condition:
        raise Mismatch(message)


def check_turns(name, number, turns):
    need(turns, f"row {number}: `{name}` is empty")
    for turn in turns:
        need(turn["role"] in ROLES, f"row {number}: role {turn['role']!r} in `{name}`")
        need(isinstance(turn["content"], str), f"row {number}: a turn of `{name}` has no text")


def check_conversations(rows):
    """The conversations that are lists; `prompt` of a plain table is text."""
    for number, row in enumerate(rows):
        for name in CONVERSATIONS:
            if isinstance(row.get(name), list):
                check_turns(name, number, row[name])
        if isinstance(row.get("completion"), list):
            roles = [turn["role"] for turn in row["completion"]]
            need(roles == ["assistant"], f"row {number}: `completion` has the turns {roles}")


def check_card(folder, columns):
    card = DatasetCard.load(folder / "README.md")
    header = card.data.to_dict()
    for key in ("license", "task_categories", "size_categories", "configs"):
        need(header.get(key), f"the card's header has no `{key}`")
    for name in columns:
        need(f"| {name} |" in card.text, f"the card does not describe column `{name}`")


def check(folder, expected):
    shards = sorted((folder / "data").glob("train-*.parquet"))
    need(shards, "there are no shards")
    for shard in shards:
        metadata = pyarrow.parquet.read_metadata(shard).metadata or {}
        need(b"ARROW:schema" not in metadata, f"{shard.name} carries an Arrow schema")

    arrow = [row for shard in shards for row in pyarrow.parquet.read_table(shard).to_pylist()]
    frame = polars.read_parquet(shards)
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=CACHE.name)
    counts = {"pyarrow": len(arrow), "polars": frame.height, "datasets": loaded.num_rows}
    need(set(counts.values()) == {expected}, f"{expected} rows are expected, found {counts}")
    need(loaded.column_names == list(arrow[0]), "`datasets` and `pyarrow` see other columns")
    need(frame.columns == list(arrow[0]), "`polars` and `pyarrow` see other columns")

    for number, (one, other, third) in enumerate(zip(arrow, loaded, frame.iter_rows(named=True))):
        need(one == other, f"row {number} differs between `pyarrow` and `datasets`")
        need(one == third, f"row {number} differs between `pyarrow` and `polars`")
    check_conversations(arrow)
    check_card(folder, loaded.column_names)
    return len(arrow)


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    try:
        rows = check(Path(sys.argv[1]), int(sys.argv[2]))
    except Mismatch as mismatch:
        print(f"export check failed: {mismatch}", file=sys.stderr)
        return 1
    print(f"{rows} rows ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
