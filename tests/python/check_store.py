"""Compares every success record below an `out` folder with the Parquet footers that pyarrow and polars see.

Usage: check_store.py OUT
"""

import json
import sys
from pathlib import Path

import polars
import pyarrow.parquet as parquet


def main():
    stages = 0
    for link in sorted(Path(sys.argv[1]).iterdir()):
        record = link / "_SUCCESS.json"
        if not record.exists():
            continue
        success = json.loads(record.read_text())
        counts = success["counts"]
        for name, output in success["outputs"].items():
            rows = 0
            for file in output["files"]:
                footer = parquet.read_metadata(link / file["file"])
                table = parquet.read_table(link / file["file"])
                frame = polars.read_parquet(link / file["file"])
                assert footer.num_rows == file["rows"] == table.num_rows == frame.height, (link, file)
                for index, column in enumerate(table.columns):
                    name_of = table.column_names[index]
                    nulls = frame[name_of].null_count()
                    assert column.null_count == nulls, (link, name_of, column.null_count, nulls)
                rows += footer.num_rows
            assert rows == output["rows"], (link, name)
        rejects = sum(parquet.read_metadata(link / file["file"]).num_rows for file in success["rejects"])
        rejected = sum(counts["rejected"].values())
        assert rejects == rejected, link
        assert counts["read"] == counts["kept"] + rejected + counts["transient"], link
        stages += 1
    assert stages > 0, "no stage found"
    print(f"{stages} stages agree")


if __name__ == "__main__":
    main()
