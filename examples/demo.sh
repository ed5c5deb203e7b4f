#!/bin/sh
# Show obygaze on real data in two parts, using only its public commands, and without downloads. The
# first part goes from eight open films to features, scores and a page, with a learnt network. The
# second is about the dialogue of 20 films and the labels of two annotators.
#
#   examples/demo.sh [FOLDER]     write to FOLDER (demo by default) and replace an earlier demo
#   OBYGAZE=... examples/demo.sh  use this obygaze instead of the one on the path
set -eu

folder=${1:-demo}
obygaze=${OBYGAZE:-obygaze}
pictures=$(dirname "$0")/pictures

bold='' plain=''
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; shift; [ $# = 0 ] || printf '%s\n' "$@"; }
run() { printf '\n$ %s\n' "obygaze $*"; "$obygaze" "$@"; }
# The AUROC of a run, between clips "within" each film or "across" films.
auroc() {
    awk -F, -v over="$2" '$3 == "auroc" && $4 == "" && $10 == over { printf "%.2f", $5 }' \
        "$folder/runs/$1/scores.csv"
}

if [ -e "$folder" ]; then
    if [ ! -f "$folder/.obygaze-demo" ]; then
        echo "Error: $folder exists and is not an earlier demo. Use another folder: $0 FOLDER" >&2
        exit 1
    fi
    rm -r "$folder"
fi
mkdir -p "$folder"
: >"$folder/.obygaze-demo"
# Threads that wait for each other leave the cores to other programs.
export HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive

say "1 of 5  Films and labels" \
    "A manifest lists clips with ids and labels. These are excerpts of eight open films, as spans of" \
    "two seconds. One person looked at each: is a person in the picture?"
run manifests import folder "$pictures/films" --every 2 -o "$folder/manifest"
run manifests label "$folder/manifest" "$pictures/labels.csv" --levels none,unsure,person

say "2 of 5  Features" \
    "Each clip becomes numbers, in a Zarr store. Only this step needs the films, and a GPU helps." \
    "EfficientNet-Lite0 learned from ImageNet. It sees four pictures of each clip."
run features extract "$folder/manifest" --videos "$pictures/films" --backbone efficientnet-lite0 \
    --sampling "2 fps" --frames 4 -o "$folder/stores"
store=$folder/stores/efficientnet-lite0.zarr
echo "Which clips look like these seconds of Sintel?"
run stores search "$store" --like sintel-4s --top 5

say "3 of 5  A model for films that it has not seen" \
    "Eight times, a model is trained on seven films and tested on the eighth. An experiment is a file:"
cat >"$folder/person.toml" <<END
name = "Is a person in the picture?"
manifest = "manifest"          # relative to this file
store = "stores/efficientnet-lite0.zarr"
positives = ["person"]
train_negatives = ["none"]
estimators = ["logistic"]
END
sed 's/^/    /' "$folder/person.toml"
run models run "$folder/person.toml" -o "$folder/runs/person"
say "Does a model also tell clips of different films apart? It has to rate several films, so this time" \
    "each of four models is tested on a quarter of the films:"
run manifests split "$folder/manifest" --by film --folds 4 --name quarters
sed 's/^name = .*/name = "Across films"/' "$folder/person.toml" >"$folder/across.toml"
echo 'split = "quarters"' >>"$folder/across.toml"
run models run "$folder/across.toml" -o "$folder/runs/across"

say "4 of 5  A page" \
    "The page has the scores of both, what you cannot conclude from them, and a picture of each clip." \
    "obygaze warns about the pictures of any film; you may share these, with what pictures/README.md says."
run features thumbnails "$folder/manifest" --videos "$pictures/films" -o "$folder/thumbnails"
run report "$folder/runs/person" "$folder/runs/across" --thumbnails "$folder/thumbnails" -o "$folder/person.html"

say "5 of 5  What is said in 20 films" \
    "Labs can share stores, but not films. This store comes with obygaze: the dialogue of each" \
    "minute of 20 films (MObyGaze) as numbers, and labels by two annotators. In which minutes is" \
    "somebody objectified?"
run models example "$folder/mobygaze"
run models run "$folder/mobygaze/level.toml" -o "$folder/runs/level"
run report "$folder/runs/level" -o "$folder/words.html"

say "What was found, on films that the models had not seen (AUROC; chance is 0.50)" \
    "A person or none, in eight open films:     $(auroc person within) within a film (only two count), $(auroc across across) across films" \
    "Sure or Easy Negative, by words, 20 films: $(auroc level within) within a film"
place=$(cd "$folder" && pwd)
echo "Open $place/person.html and $place/words.html"
