#!/usr/bin/env bash
# The runs that Table 2 still lacks, on the lists of the authors' first version: see README.md, "What is next".
#
# on_gpu.sh prepare FOLDER | five-shot | one-shot | table5 | authors-code | tf32
# Each may be interrupted (timeout --signal=INT SECONDS) and started again; RUNS holds what is trained.
# PYTHON, OUT, RUNS, SEMISHOT_DATA and DEVICE may be set; SMALL=1 makes everything tiny.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-out} RUNS=${RUNS:-runs} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-}
export PYTHONPATH=src PYTHONUNBUFFERED=1 SEMISHOT_DATA=${SEMISHOT_DATA:-authors}
where=(--runs "$RUNS" --device "$DEVICE")
few=(--splits 5)
[ -z "$SMALL" ] || few=(--splits 2 --updates 2)

reproduce() { # WHAT, then its flags
    "$PYTHON" -m semishot reproduce "$1" --dataset mini-imagenet "${where[@]}" --publish "$OUT" "${@:2}"
}

case "${1:-}" in
prepare) "$PYTHON" -m semishot data prepare mini-imagenet --source "$2" --lists swapped ;;
five-shot) reproduce table2 --preset ren2018-text --shots 5 "${few[@]}" ;; # 1,450 s on one H200
one-shot) reproduce table2 --preset ren2018-text --shots 1 "${few[@]}" ;;  # 1,080 s
table5) reproduce table5 --features pixels random authors_random pretrained "${few[@]}" ;;
authors-code) # each method as there; its cluster at 5 shots: does it still take everything?
    [ -n "$SMALL" ] || reproduce ablations --splits 5
    "$PYTHON" -m semishot train --dataset mini-imagenet --model distractor_cluster --shot 5 --distractors 5 \
        --options two_r_squared true score_distractors true --split-seeds 0 1 2 3 4 "${where[@]}" ${SMALL:+--updates 2}
    ;;
tf32)
    "$PYTHON" -m semishot train --dataset mini-imagenet --model supervised --shot 5 --precision tf32 \
        --split-seeds 0 1 2 3 4 "${where[@]}" ${SMALL:+--updates 2}
    ;;
*)
    sed -n '2,6p' "$0" >&2
    exit 2
    ;;
esac
