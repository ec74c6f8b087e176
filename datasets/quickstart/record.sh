#!/bin/sh
# Writes recordings/smollm2-135m.jsonl.gz anew: a live run of the whole project with an empty call store, whose calls
# are then written as recordings. `make record` builds the program and runs this. The same model gives the same bytes.
#
# A second run leaves out `unique`, so that there are answers to the duplicates too: with --limit, the row that `unique`
# keeps in the whole project may be another one than it keeps of the first rows.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
pipeline=${PIPELINE:-pipeline}
sh "$here/fetch_model.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in problems.jsonl eval.jsonl models recordings; do ln -s "$here/$name" "$scratch/$name"; done
cp "$here/dag.toml" "$scratch/dag.toml"
sed 's/^inputs = "unique"$/inputs = "clean"/' "$here/dag.toml" > "$scratch/duplicates.toml"
"$pipeline" run "$scratch/dag.toml"
"$pipeline" run "$scratch/duplicates.toml"
"$pipeline" calls "$scratch/out/calls" --record "$here/recordings/smollm2-135m.jsonl.gz"
