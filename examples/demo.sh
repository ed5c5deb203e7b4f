#!/bin/sh
# Without films or downloads, by public commands of obygaze alone, two parts: from clips to a store
# of features (a program draws the clips, and the network's weights are random); and from a store to
# a report, which is real: what is said in 20 films, beside what two annotators said of them.
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

say "1 of 6  Clips" \
    "We cannot share films, so a program draws 16 short clips: four \"films\" of four scenes." \
    "They are SYNTHETIC: nothing was filmed, and nobody annotated anything."
run features make-clips "$folder/drawn" --count 4 --scenes 4 --seconds 1

say "2 of 6  Manifest" \
    "A manifest lists the clips with ids and labels. Everything else goes by these ids." \
    "For ObyGaze12, type: obygaze manifests import obygaze12 --download"
run manifests import csv "$folder/drawn/annotations.csv" --name synthetic -o "$folder/drawn/manifest"

say "3 of 6  Features" \
    "Each clip is decoded once for all backbones, and each backbone gets a Zarr store. Only this" \
    "step needs the films, and a GPU helps. This backbone is tiny and its weights are RANDOM," \
    "trained on nothing; the paper's are: xclip-kinetics, vivit, xclip-lsmdc=CHECKPOINT"
run features extract "$folder/drawn/manifest" --videos "$folder/drawn/videos" \
    --backbone tiny-xclip -o "$folder/drawn/stores"
run stores info "$folder/drawn/stores/tiny-xclip.zarr"

say "4 of 6  A real store" \
    "Labs share stores; they cannot share films. From here on the data are REAL: MObyGaze, 20 films," \
    "two annotators, and what is said in each minute, as numbers."
run models example "$folder/mobygaze"
run annotations agreement "$folder/mobygaze/minutes"

say "5 of 6  Models" \
    "Which minutes objectify somebody? A model is trained on 18 films and tested on one that it never" \
    "saw, 20 times: by what is said, and by how much is said. An experiment is a file:"
sed 's/^/    /' "$folder/mobygaze/level.toml"
for experiment in level length concepts; do
    run models run "$folder/mobygaze/$experiment.toml" -o "$folder/runs/$experiment"
done
say "What do the words add to their number? Both are scored on the same minutes, over the same films:"
run models compare "$folder/runs/length" "$folder/runs/level"

say "6 of 6  Report" \
    "The scores as a page, with what you may not conclude from them, and each film's minutes, with" \
    "what the model and the annotators said of them."
run report "$folder/runs/level" "$folder/runs/length" "$folder/runs/concepts" \
    --title "What is said in 20 films" -o "$folder/report.html"

say "Done." "Open $(cd "$folder" && pwd)/report.html"
