#!/usr/bin/env python3
"""PreToolUse: what each agent must not do, whatever its permissions say. Exit 2 refuses; stderr is the reason."""
import json
import sys

FORBIDDEN = {"worker": ["git push", "git reset"], "web-search": ["curl http://"]}

event = json.load(sys.stdin)
command = event["tool_input"].get("command", "")
for words in FORBIDDEN.get(event["agent_type"], []):
    if words in command:
        print(f"policy: {event['agent_type']} must not run `{words}`", file=sys.stderr)
        sys.exit(2)
