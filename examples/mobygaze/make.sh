#!/bin/sh
# Make the minutes/ and the words.zarr/ of this folder again, from the authors' files. It takes five
# minutes on two cores, and needs the extras `extract` and `small`.
#
#   examples/mobygaze/make.sh SOURCE FOLDER
#
# SOURCE has mobygaze_dataframe.csv, tractive_subtitles.sql and tractive_movies.sql.
set -eu

source=$1 folder=$2
here=$(dirname "$0")
obygaze=${OBYGAZE:-obygaze} python=${PYTHON:-python3} # in which obygaze is installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$folder"
"$obygaze" annotations import mobygaze "$source/mobygaze_dataframe.csv" -o "$work/timelines"
"$obygaze" annotations project "$work/timelines" --grid 60 -o "$folder/minutes"
"$obygaze" annotations merge "$folder/minutes"
"$obygaze" manifests split "$folder/minutes" --by film
"$python" "$here/subtitles.py" "$source" "$work/subtitles"
# A subtitle is after its film's end, and some subtitle files have no minutes: exit code 3.
"$obygaze" manifests subtitles "$folder/minutes" "$work/subtitles" -o "$work/words" || [ $? = 3 ]
"$obygaze" features extract "$work/words" --backbone all-minilm-l6-v2 --backbone words -o "$work/stores"
"$python" "$here/words.py" "$work/words" "$work/stores" "$folder"
rm "$folder/words.zarr/log.jsonl" # the time, and the name of the machine
