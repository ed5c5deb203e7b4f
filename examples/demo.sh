#!/bin/sh
# From film clips to a report, without films or downloads: a program draws the clips, and the
# network's weights are random. Every step is a public command of obygaze.
#
#   examples/demo.sh [FOLDER]     FOLDER is demo by default; an earlier demo there is removed
#   OBYGAZE=... examples/demo.sh  another obygaze than the one on the path
set -eu

folder=${1:-demo}
obygaze=${OBYGAZE:-obygaze}

bold='' plain=''
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; shift; printf '%s\n' "$@"; }
run() { printf '\n$ %s\n' "obygaze $*"; "$obygaze" "$@"; }

if [ -e "$folder" ]; then
    if [ ! -f "$folder/.obygaze-demo" ]; then
        echo "Error: $folder is there and no earlier demo; name another folder: $0 FOLDER" >&2
        exit 1
    fi
    rm -r "$folder"
fi
mkdir -p "$folder"
: >"$folder/.obygaze-demo"
export HF_HUB_OFFLINE=1

say "1 of 7  Clips" \
    "We cannot share films, so a program draws 48 short clips: four \"films\" of twelve scenes." \
    "They are SYNTHETIC: nothing was filmed, and nobody annotated anything."
run features make-clips "$folder/data" --films 4 --scenes 12 --seconds 1

say "2 of 7  Manifest" \
    "A manifest lists the clips with ids and labels. Everything else goes by these ids." \
    "For ObyGaze12, type: obygaze manifests import obygaze12 --download"
run manifests import csv "$folder/data/annotations.csv" --name synthetic -o "$folder/manifest"
run manifests stats "$folder/manifest"

say "3 of 7  Folds" \
    "Each clip gets one fold, with levels spread evenly, so no clip is in training and test."
run manifests split "$folder/manifest" --folds 4

say "4 of 7  Before the GPU" \
    "Check every file on the CPU first, so that bad files cost you no time on the GPU." \
    "(These clips are short: the backbones will see some frames twice, or fewer frames.)"
run features probe "$folder/manifest" --videos "$folder/data/videos"

say "5 of 7  Features" \
    "Each clip is decoded once for three backbones, and each backbone gets a Zarr store. Only this" \
    "step needs the films, and a GPU helps. These backbones are tiny and their weights are" \
    "RANDOM, trained on nothing; the paper's are: xclip-kinetics, vivit, xclip-lsmdc=CHECKPOINT"
run features extract "$folder/manifest" --videos "$folder/data/videos" \
    --backbone tiny-xclip --backbone tiny-vivit --backbone tiny-xclip-lsmdc -o "$folder/stores"
run stores info "$folder/stores/tiny-xclip.zarr"

say "6 of 7  Models" \
    "On each store: a small network, concept vectors, bottlenecks that decide by concepts, and what" \
    "guessing would score. This needs a CPU and the stores alone. An experiment is a file:"
for backbone in tiny-xclip tiny-vivit tiny-xclip-lsmdc; do
    cat > "$folder/$backbone.toml" <<TOML
name = "Demo: Sure against the negatives, by $backbone"
manifest = "manifest"
store = "stores/$backbone.zarr"
split = "leak-free"
positives = ["S"]
train_negatives = ["EN", "HN"]
estimators = ["mlp", "svm", {name = "pcbm-tree", negatives = "b"}, {name = "pcbm-logistic", negatives = "b"}, "random-directions", "film-prior"]
TOML
done
cat > "$folder/concepts.toml" <<'TOML'
name = "Demo: concepts, each against all clips without it"
manifest = "manifest"
store = "stores/tiny-xclip.zarr"
split = "leak-free"
concepts = ["Look", "Body"]
negatives = "b"
estimators = ["svm"]
TOML
sed 's/^/    /' "$folder/tiny-xclip.toml"
for experiment in tiny-xclip tiny-vivit tiny-xclip-lsmdc concepts; do
    run models run "$folder/$experiment.toml" -o "$folder/runs/$experiment"
done
say "Is one backbone better? Both are scored on the same clips, in the same random draws of films:"
run models compare "$folder/runs/tiny-xclip" "$folder/runs/tiny-vivit" --model mlp -o "$folder/compared.svg"
run models train "$folder/tiny-xclip.toml" --estimator pcbm-tree -o "$folder/model"
run models predict "$folder/model" "$folder/stores/tiny-xclip.zarr" --band 0.4 0.6 -o "$folder/predictions.csv"

say "7 of 7  Report" \
    "The scores as a page, with what you may not conclude from them, and each film's clips, with what" \
    "the models and the annotators said of them, and why."
run report "$folder/runs/tiny-xclip" "$folder/runs/tiny-vivit" "$folder/runs/tiny-xclip-lsmdc" \
    "$folder/runs/concepts" --title "Demo: synthetic clips, random weights" -o "$folder/report.html"

say "Done." \
    "Clips and weights were synthetic: the pipeline works, and the scores mean nothing." \
    "Open $(cd "$folder" && pwd)/report.html"
