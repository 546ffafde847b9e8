#!/usr/bin/env bash
# The measurements of preset two-stage, in parts that each end within 10 minutes on one H200: see README.md.
#
# on_gpu.sh prepare FOLDER | tests | choose | omniglot | table | later
# PYTHON, OUT, RUNS, SEMISHOT_DATA and DEVICE may be set; SMALL=1 makes everything tiny.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3} OUT=${OUT:-out} RUNS=${RUNS:-runs} DEVICE=${DEVICE:-cuda} SMALL=${SMALL:-}
export PYTHONPATH=src:experiments:benchmarks:tests PYTHONUNBUFFERED=1
export SEMISHOT_DATA=${SEMISHOT_DATA:-data}
mkdir -p "$OUT"

compare() { # DATA SET, FILE: variants of the preset on validation classes
    few=(--splits 3)
    [ -z "$SMALL" ] || few=(--splits 2 --updates 2 --episodes 2 --only "the preset")
    "$PYTHON" -m second_generation.variants "$1" "$OUT/$2.json" --runs "$RUNS" --device "$DEVICE" "${few[@]}"
}

table2() { # SPLITS, then further flags: on test classes
    few=(--splits "$1")
    [ -z "$SMALL" ] || few=(--splits 1 --updates 2)
    "$PYTHON" -m semishot reproduce table2 --preset two-stage --runs "$RUNS" --device "$DEVICE" \
        --publish "$OUT" "${few[@]}" "${@:2}"
}

case "${1:-}" in
prepare)
    "$PYTHON" -m semishot data prepare mini-imagenet --source "$2/mini-imagenet"
    "$PYTHON" -m semishot data prepare omniglot --source "$2/omniglot"
    ;;
tests) "$PYTHON" -m pytest tests/network/test_fused.py -q -p no:cacheprovider ;;
choose) compare mini-imagenet choose ;;
omniglot) compare omniglot omniglot ;;
table) table2 10 ;;
later) table2 5 --models oslo label_propagation prwn ;;
*)
    sed -n '2,5p' "$0" >&2
    exit 2
    ;;
esac
