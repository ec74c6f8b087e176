"""Compares an imported stage, read by pyarrow, with the file it came from: the prompt, and every other column in `extra`.

Usage: check_import.py STAGE_FOLDER SOURCE_FILE PROMPT_PATH
"""

import gzip
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as parquet


def source_rows(path):
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def at(row, path):
    for part in re.findall(r"[^.\[\]]+", path):
        row = row[int(part)] if isinstance(row, list) else row[part]
    return row


def main():
    folder, source, path = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    record = json.loads((folder / "_SUCCESS.json").read_text())
    files = [folder / file["file"] for file in record["outputs"]["main"]["files"]]
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    originals = source_rows(source)
    assert len(rows) == len(originals), (len(rows), len(originals))
    top = re.findall(r"[^.\[\]]+", path)[0]
    for number, (row, original) in enumerate(zip(rows, originals)):
        assert row["prompt"] == str(at(original, path)), (number, row["prompt"])
        assert row["messages"][-1]["content"] == row["prompt"] and row["messages"][-1]["role"] == "user", number
        extra = json.loads(row["extra"]) if row["extra"] is not None else {}
        for key, value in original.items():
            # a column of which only a part is mapped keeps its rest, which is not compared here
            if key != top:
                assert key in extra or value is None, (number, key)
                assert extra.get(key) == value, (number, key, extra.get(key), value)
        assert set(extra) <= set(original) | {top}, (number, set(extra) - set(original))
    print(f"{len(rows)} rows equal")


if __name__ == "__main__":
    main()
