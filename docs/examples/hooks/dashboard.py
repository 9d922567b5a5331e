#!/usr/bin/env python3
"""Any event: what every running agent does at the moment, one small file each, for a page or a status line."""
import json
import os
import sys

event = json.load(sys.stdin)
os.makedirs("data/dashboard", exist_ok=True)
place = f"data/dashboard/{event['agent_type']}-{event['agent_id'][-8:]}.json"
if event["hook_event_name"] == "RunEnded":
    doing = event["outcome"]
else:
    doing = event.get("tool_name") or event["hook_event_name"]
with open(place + ".new", "w") as file:
    json.dump({"agent": event["agent_type"], "doing": doing}, file)
os.replace(place + ".new", place)
