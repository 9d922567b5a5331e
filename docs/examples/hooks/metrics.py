#!/usr/bin/env python3
"""RunEnded: one line per run, for a spreadsheet or a scraper."""
import csv
import json
import sys

event = json.load(sys.stdin)
with open("data/metrics.csv", "a", newline="") as file:
    csv.writer(file).writerow(
        [event["agent_type"], event["outcome"], event["duration_ms"], event.get("cost_usd"), event.get("turns")]
    )
