#!/bin/sh
# Writes recordings/smollm2-135m.jsonl.gz anew: a live run of the whole project with an empty call store, whose calls
# are then written as recordings. `make record` builds the program and runs this. The same model gives the same bytes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
pipeline=${PIPELINE:-pipeline}
sh "$here/fetch_model.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$pipeline" run "$here/dag.toml" --out "$scratch"
"$pipeline" calls "$scratch/calls" --record "$here/recordings/smollm2-135m.jsonl.gz"
