#!/usr/bin/env bash
# The runs that Table 2 still lacks, on the lists of the authors' first version: see README.md, "What is next".
#
# on_gpu.sh prepare FOLDER | arms [ARM ...] | five-shot | table5 | authors-code
# Each may be interrupted (timeout --signal=INT SECONDS) and started again; RUNS holds what is trained.
# PYTHON, OUT, RUNS, SEMISHOT_DATA, DEVICE and SPLITS may be set; SMALL=1 makes everything tiny.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-out} RUNS=${RUNS:-runs} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-}
export RUNS DEVICE PYTHONPATH=src PYTHONUNBUFFERED=1 SEMISHOT_DATA=${SEMISHOT_DATA:-authors}
few=(--splits "${SPLITS:-5}")
[ -z "$SMALL" ] || few=(--splits 2 --updates 2)

reproduce() { # WHAT, then its flags
    "$PYTHON" -m semishot reproduce "$1" --dataset mini-imagenet --runs "$RUNS" --device "$DEVICE" --publish "$OUT" "${@:2}"
}

case "${1:-}" in
prepare) "$PYTHON" -m semishot data prepare mini-imagenet --source "$2" --lists swapped ;;
five-shot) reproduce table2 --preset ren2018-text --shots 5 "${few[@]}" ;;
table5) reproduce table5 --features pixels random authors_random pretrained "${few[@]}" ;;
authors-code) [ -n "$SMALL" ] || reproduce ablations --splits "${SPLITS:-5}" ;; # each method as there, at 1 shot
arms)
    [ -z "$SMALL" ] || export UPDATES=2 EPISODES=5 EVERY=2 SPLITS=2
    "$PYTHON" experiments/table2/arms.py "$OUT" "${@:2}"
    cat "$OUT/arms.md"
    ;;
*)
    sed -n '2,6p' "$0" >&2
    exit 2
    ;;
esac
