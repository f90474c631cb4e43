#!/usr/bin/env bash
# bench-mons.sh [--quick]: measures how lockkeeper moves mons, under write load, in a lab of its own, and prints one line "name value unit"
# for each figure. What happens meanwhile goes to standard error. It takes some minutes. ROUNDS=n sets how often each of the three mons is
# moved (4); --quick moves each of them once.
set -euo pipefail
case ${1-} in
  '') ;;
  --quick) : "${ROUNDS:=1}" ;;
  *) echo "bench-mons.sh: $1: allowed is --quick, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
go -C "$top" build -o "$work/mons" ./test/bench/mons
install+=(--mons)
{
  enter_world "${BENCH_NAME:-bench-mons}" --zones 3 --nodes-per-zone 2 --osds-per-node 1 --mon-storage hostpath
  move_in
  machines_apart
  adopt_mons
} >&2
lab-in-image --name "$world" "$work/mons" --rounds "${ROUNDS:-4}"
writer_says
