#!/usr/bin/env bash
# Measures what the engine costs: a stage that keeps every row of a large table of traces, against arrow-rs alone
# reading and writing the same files on one thread. Prints seconds, CPU seconds, the ratio and the peak memory.
#
#   tests/tools/overhead.sh [MEGABYTES] [JOBS]
set -euo pipefail
cd "$(dirname "$0")/../.."
megabytes=${1:-2048} jobs=${2:-1}
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/pipeline/target}"
cargo build --release --quiet --bin pipeline --example plain_copy --example make_traces
bin=$CARGO_TARGET_DIR/release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/examples/make_traces" "$work/traces.parquet" "$megabytes"
cat >"$work/dag.toml" <<'DAG'
[stages.all]
kind = "import"
files = ["traces.parquet"]
rows = "traces"
columns = { prompt = "prompt", label = "label", response = "response", model = "model", sample = "sample", domain = "domain", completion_tokens = "completion_tokens" }

[stages.kept]
kind = "select"
inputs = "all"
where = "sample >= 0"
DAG
"$bin/pipeline" run "$work/dag.toml" all --jobs 2 >/dev/null 2>&1
measure() { # name, command...
  local name=$1; shift
  /usr/bin/env time -f "%e %U %S %M" -o "$work/time" "$@" >/dev/null 2>"$work/err" || { cat "$work/err"; exit 1; }
  read -r wall user system peak <"$work/time"
  printf '%-10s %8.2f s wall %8.2f CPU s %8.0f MiB peak\n' "$name" "$wall" "$(echo "$user + $system" | bc)" "$((peak / 1024))"
  echo "$wall $(echo "$user + $system" | bc)" >"$work/$name"
}
for _ in 1 2 3; do
  measure plain "$bin/examples/plain_copy" "$work/copy.parquet" "$work"/out/all/data/*.parquet
  rm -rf "$work"/out/.store/kept-* "$work/out/kept"
  measure engine "$bin/pipeline" run "$work/dag.toml" --only kept --jobs "$jobs"
  read -r plain plain_cpu <"$work/plain"; read -r engine engine_cpu <"$work/engine"
  echo "ratio of speeds (engine / plain): wall $(echo "scale=2; $plain / $engine" | bc), CPU $(echo "scale=2; $plain_cpu / $engine_cpu" | bc)"
done
