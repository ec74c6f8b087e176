"""Checks the licences of all dependencies against the list in deny.toml, from `cargo metadata`.

`cargo deny` does the same and more; this script needs nothing that is not there, so the check runs everywhere.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met with allowed licences alone."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternatives(position):
        met, position = conjunction(position)
        while position < len(tokens) and tokens[position] == "OR":
            other, position = conjunction(position + 1)
            met = met or other
        return met, position

    def conjunction(position):
        met, position = single(position)
        while position < len(tokens) and tokens[position] == "AND":
            other, position = single(position + 1)
            met = met and other
        return met, position

    def single(position):
        if tokens[position] == "(":
            met, position = alternatives(position + 1)
            return met, position + 1
        name, position = tokens[position], position + 1
        if position < len(tokens) and tokens[position] == "WITH":
            name, position = f"{name} WITH {tokens[position + 1]}", position + 2
        return name in allowed, position

    return alternatives(0)[0]


def main():
    licences = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    exceptions = {entry["crate"]: set(entry["allow"]) for entry in licences.get("exceptions", [])}
    wrong = []
    for package in metadata["packages"]:
        expression = package["license"] or "none"
        allowed = set(licences["allow"]) | exceptions.get(package["name"], set())
        if not is_allowed(expression, allowed):
            wrong.append(f"{package['name']} {package['version']}: {expression}")
    print("\n".join(wrong) if wrong else f"licences of {len(metadata['packages'])} packages are allowed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
