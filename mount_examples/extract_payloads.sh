#!/usr/bin/env bash
# Getting binary payloads out: value/<offset> is a message's value as raw bytes, so that any program can open it.
# Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

kfs demo data >/dev/null
mkdir mnt pictures
kfs mount data mnt

tell "A topic of PNG pictures. In JSON, what is no text is base64 ..."
show "cut -c 1-280 mnt/thumbnails/0/offset/5.json"

tell "... and value/5 is the same value as it is. (These files are there by name; mounted with --views, ls lists them.)"
show "head -c 8 mnt/thumbnails/0/value/5 | od -A n -c"
show "cp mnt/thumbnails/0/value/5 one.png"

tell "Is it what the message holds? The value out of the JSON and the file have to be the same bytes."
show "jq -rj .value mnt/thumbnails/0/offset/5.json | base64 -d | sha256sum"
show "sha256sum < one.png"
[[ $(jq -rj .value mnt/thumbnails/0/offset/5.json | base64 -d | sha256sum) == $(sha256sum <one.png) ]]

tell "All of them, named by offset and key."
# shellcheck disable=SC2016  # the inner shell expands it
show 'cat mnt/thumbnails/0/segment/*.jsonl | jq -r "[.offset, .key] | @tsv" |
    while read -r offset key; do cp "mnt/thumbnails/0/value/$offset" "pictures/$offset-$key"; done'
show "ls pictures | sort -V | head -5"
show "ls pictures | wc -l"

tell "Checksums of the values in the mount, held against the copies."
show "(cd mnt/thumbnails/0/value && sha256sum {0..47}) > SHA256SUMS"
# shellcheck disable=SC2016
show 'while read -r sum offset; do echo "$sum" pictures/"$offset"-*; done < SHA256SUMS | sha256sum --check --quiet &&
    echo all intact'

tell "Frames of 16 bytes: a sync byte, a version, two bytes for the device, two floats, a checksum. One a line:"
show "cat mnt/sensor-readings/0/value/{300..302} | od -A n -t x1 -w16"
