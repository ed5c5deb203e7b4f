#!/bin/sh
# Make the minutes/ of this folder (bit for bit) and the rows of its words.zarr/ again, from the
# authors' files. (Stores that are compressed, like the one here, were made before version 0.4.)
#
#   examples/mobygaze/make.sh SOURCE FOLDER
#
# SOURCE has mobygaze_dataframe.csv, tractive_subtitles.sql and tractive_movies.sql.
set -eu

source=$1 folder=$2
obygaze=${OBYGAZE:-obygaze}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$folder"
"$obygaze" annotations import mobygaze "$source/mobygaze_dataframe.csv" -o "$work/timelines"
"$obygaze" annotations project "$work/timelines" --grid 60 -o "$folder/minutes"
"$obygaze" annotations merge "$folder/minutes"
"$obygaze" manifests split "$folder/minutes" --by film
"${PYTHON:-python3}" "$(dirname "$0")/subtitles.py" "$source" "$work/subtitles"
# A subtitle is after its film's end, and some subtitle files have no minutes: exit code 3.
"$obygaze" manifests subtitles "$folder/minutes" "$work/subtitles" -o "$work/words" || [ $? = 3 ]
"$obygaze" features extract "$work/words" --backbone words -o "$folder"
"$obygaze" stores finalise "$folder/words.zarr"
rm "$folder/log.jsonl" "$folder/words.zarr/log.jsonl" # the times of steps and names of machines
