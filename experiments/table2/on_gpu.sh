#!/usr/bin/env bash
# The runs that Table 2 still lacks, on the lists of the authors' first version: see README.md, "What is next".
#
# on_gpu.sh prepare FOLDER | arms [ARM ...] | one-shot | five-shot | table5 | authors-code
# Each may be interrupted (timeout --signal=INT SECONDS) and started again; RUNS holds what is trained.
# PYTHON, OUT, RUNS, SEMISHOT_DATA, DEVICE and SPLITS may be set; SMALL=1 makes everything tiny.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-out} RUNS=${RUNS:-runs} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-}
export RUNS DEVICE PYTHONPATH=src PYTHONUNBUFFERED=1 SEMISHOT_DATA=${SEMISHOT_DATA:-authors}
where=(--runs "$RUNS" --device "$DEVICE")
few=(--splits "${SPLITS:-5}")
[ -z "$SMALL" ] || few=(--splits 2 --updates 2)

reproduce() { # WHAT, then its flags
    "$PYTHON" -m semishot reproduce "$1" --dataset mini-imagenet "${where[@]}" --publish "$OUT" "${@:2}"
}

train_and_test() { # NAME, MODEL, DISTRACTORS, then flags of the training; the table is in OUT/NAME.html
    "$PYTHON" -m semishot train --dataset mini-imagenet --model "$2" --shot 5 --distractors "$3" --out "$RUNS/$1" \
        --split-seeds 0 1 2 3 4 --device "$DEVICE" ${SMALL:+--updates 2} "${@:4}"
    "$PYTHON" -m semishot evaluate --model "$RUNS/$1" --shot 5 --query 5 --unlabeled 20 --distractors "$3" \
        --device "$DEVICE" ${SMALL:+--episodes 5} --json > "$OUT/$1.json"
    "$PYTHON" -m semishot report "$OUT/$1.json" --out "$OUT/$1.html"
}

mkdir -p "$OUT"
case "${1:-}" in
prepare) "$PYTHON" -m semishot data prepare mini-imagenet --source "$2" --lists swapped ;;
five-shot) reproduce table2 --preset ren2018-text --shots 5 "${few[@]}" ;;
one-shot) reproduce table2 --preset ren2018-text --shots 1 "${few[@]}" ;;
table5) reproduce table5 --features pixels random authors_random pretrained "${few[@]}" ;;
authors-code) # each method as there; its cluster at 5 shots: does it still take everything?
    [ -n "$SMALL" ] || reproduce ablations --splits 5
    train_and_test cluster distractor_cluster 5 --options two_r_squared true score_distractors true
    ;;
arms)
    [ -z "$SMALL" ] || export UPDATES=2 EPISODES=5 EVERY=2 SPLITS=2
    "$PYTHON" experiments/table2/arms.py "$OUT" "${@:2}"
    ;;
*)
    sed -n '2,6p' "$0" >&2
    exit 2
    ;;
esac
