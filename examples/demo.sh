#!/bin/sh
# Show obygaze in two parts, using only its public commands, without films or downloads. The first
# part goes from synthetic clips to a feature store, with a network with random weights. The second
# goes from a real store to a report about the dialogue of 20 films and the labels of two annotators.
#
#   examples/demo.sh [FOLDER]     write to FOLDER (demo by default) and replace an earlier demo
#   OBYGAZE=... examples/demo.sh  use this obygaze instead of the one on the path
set -eu

folder=${1:-demo}
obygaze=${OBYGAZE:-obygaze}

bold='' plain=''
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; shift; printf '%s\n' "$@"; }
run() { printf '\n$ %s\n' "obygaze $*"; "$obygaze" "$@"; }

if [ -e "$folder" ]; then
    if [ ! -f "$folder/.obygaze-demo" ]; then
        echo "Error: $folder exists and is not an earlier demo. Use another folder: $0 FOLDER" >&2
        exit 1
    fi
    rm -r "$folder"
fi
mkdir -p "$folder"
: >"$folder/.obygaze-demo"
export HF_HUB_OFFLINE=1

say "1 of 6  Clips" \
    "We cannot share films, so this step generates 16 short clips: four \"films\" of four scenes." \
    "They are SYNTHETIC: nothing was filmed, and nobody annotated them."
run features demo "$folder/drawn" --count 4 --scenes 4 --seconds 1

say "2 of 6  Manifest" \
    "A manifest lists the clips with ids and labels. Everything else refers to these ids." \
    "For ObyGaze12, run: obygaze manifests import obygaze12"
run manifests import csv "$folder/drawn/annotations.csv" -o "$folder/drawn/manifest"

say "3 of 6  Features" \
    "Each clip is decoded once for all backbones, and each backbone gets a Zarr store. Only this" \
    "step needs the films, and a GPU helps. This backbone is tiny and has RANDOM weights. The paper" \
    "uses these backbones: xclip-kinetics, vivit, xclip-lsmdc=CHECKPOINT"
run features extract "$folder/drawn/manifest" --videos "$folder/drawn/videos" \
    --backbone tiny-xclip -o "$folder/drawn/stores"
run stores info "$folder/drawn/stores/tiny-xclip.zarr"

say "4 of 6  A real store" \
    "Labs can share stores, but not films. From here on, the data are REAL: MObyGaze, with 20 films," \
    "the labels of two annotators, and the dialogue of each minute as numbers."
run models example "$folder/mobygaze"
run annotations agreement "$folder/mobygaze/minutes"

say "5 of 6  Models" \
    "In which minutes is somebody objectified? 20 times, a model is trained on 18 films and tested" \
    "on a film that it has not seen, using either the words or only their number. An experiment is" \
    "a file:"
sed 's/^/    /' "$folder/mobygaze/rest.toml"
for experiment in rest level length; do
    run models run "$folder/mobygaze/$experiment.toml" -o "$folder/runs/$experiment"
done
say "Do the words predict better than their number? Both models are scored on the same minutes:"
run models compare "$folder/runs/length" "$folder/runs/level"

say "6 of 6  Report" \
    "A page with the scores, what you cannot conclude from them, and the minutes of each film, with" \
    "the labels of the annotators and the predictions of the models."
run report "$folder/runs/rest" "$folder/runs/level" "$folder/runs/length" -o "$folder/report.html"

say "Done." "Open $(cd "$folder" && pwd)/report.html"
