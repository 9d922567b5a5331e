#!/bin/sh
# PreCompact: keeps the whole transcript before the conversation is shortened.
set -eu
path=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["agent_transcript_path"])')
mkdir -p data/backups
cp "$path" "data/backups/$(date +%s)-$(basename "$path")"
