#!/usr/bin/env bash
# Lets two builds of Adjutant share a project's data/, in both directions and at the same time:
#
#     tests/store-compat.sh OLD NEW
#
# Each build must read what the other wrote: sessions and costs with journals that are not compacted and torn last
# lines, the audit log, events, tokens and tool pins. Runs use the fake `claude` of tests/helpers (built with cargo, or
# named by FAKE_CLAUDE_BINARY). Needs jq. Exit code 0 if everything was read and nothing was lost.
set -u -o pipefail

[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
OLD=$(realpath "$1") NEW=$(realpath "$2")
REPOSITORY=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${FAKE_CLAUDE_BINARY:-}" ]; then
    (cd "$REPOSITORY" && cargo build --quiet --example fake_claude) || exit 2
    FAKE_CLAUDE_BINARY=$REPOSITORY/${CARGO_TARGET_DIR:-target}/debug/examples/fake_claude
fi
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
FAILURES=0 CHECKS=0 RUNS=0

# Runs a build in the project, with an environment that holds nothing of the user's.
adjutant() {
    local build=$1
    shift
    (cd "$WORK/project" && exec env -i PATH="$PATH" HOME="$WORK/home" NO_COLOR=1 GATEWAY_DEBUG=1 \
        ADJUTANT_CLAUDE="$FAKE_CLAUDE_BINARY" CLAUDE_CODE_SESSION_ID=main-session "$build" "$@")
}

name() { [ "$1" = "$OLD" ] && echo old || echo new; }

check() { # description, found, expected
    CHECKS=$((CHECKS + 1))
    [ "$2" = "$3" ] && return
    FAILURES=$((FAILURES + 1))
    printf 'FAILED: %s\n  found:    %.2000s\n  expected: %.2000s\n' "$1" "$2" "$3"
}

project() {
    rm -rf "$WORK/project" "$WORK/home"
    mkdir -p "$WORK/home" "$WORK/project/agents/helper" "$WORK/project/agents/keeper"
    printf -- '---\nname: helper\ndescription: Helps\n---\nHelp.\n' > "$WORK/project/agents/helper/agent.md"
    printf -- '---\nname: keeper\ndescription: Keeps\nsession: true\n---\nKeep.\n' > "$WORK/project/agents/keeper/agent.md"
    RUNS=0
}

run() { # build, agent, arguments
    local build=$1 agent=$2
    shift 2
    RUNS=$((RUNS + 1))
    adjutant "$build" run "$agent" 'FAKE result done' "$@" > "$WORK/out" 2> "$WORK/err" ||
        check "$(name "$build") runs $agent" "$(cat "$WORK/err")" success
    check "$(name "$build") runs $agent without a warning" "$(grep -E 'WARN|warning' "$WORK/err" | grep -v 'cleaned up after an earlier crash')" ''
}

sessions() { adjutant "$1" sessions list --json 2>&1; }
turns() { sessions "$1" | jq -c '[.[].turns] | add'; }
runs_paid() { adjutant "$1" costs --json 2>&1 | jq -c '[(.rows? // .)[].runs] | add'; }

# The values of a query that both formats of the output have.
values() { # build, query
    local filter output
    case $2 in
        'sessions list') filter='map([.agent, .key, .state, .session_id, .turns, .cost_usd])' ;;
        costs*) filter='[(.rows? // .)[] | [.agent // .day, .runs, (.cost_usd * 1e6 | round)]]' ;;
        'audit --verify') filter='[.lines, .newest_hash, (.problems | length)]' ;;
        events) filter='[.seq, .hook_event_name, (.run_id // "" | gsub("-"; "")), .outcome]' ;;
        *) filter='map(.caller)' ;;
    esac
    # shellcheck disable=SC2086
    output=$(adjutant "$1" $2 --json 2>&1)
    jq -c "$filter" <<< "$output" 2> /dev/null || printf '%s' "$output"
}

# Both builds read the same values.
same() { # description
    local query
    for query in 'sessions list' 'costs --by agent' 'costs --by day' 'costs --by session' 'audit --verify' events 'token list'; do
        check "$1: $query" "$(values "$NEW" "$query")" "$(values "$OLD" "$query")"
    done
    adjutant "$NEW" audit --verify > "$WORK/out" 2>&1 || check "$1: the audit log" "$(cat "$WORK/out")" sound
    check "$1: runs in the ledger" "$(runs_paid "$NEW")" "$RUNS"
}

# Starts `serve` or `gateway`; send and answer talk to it.
start() { # build, command
    local build=$1
    shift
    coproc SERVER { adjutant "$build" "$@" 2> "$WORK/err"; }
    send '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"compat","version":"1"}}}'
    answer 1 > "$WORK/out"
    send '{"jsonrpc":"2.0","method":"notifications/initialized"}'
}
send() { printf '%s\n' "$1" >&"${SERVER[1]}"; }
answer() { # id
    local line
    while read -r -t 30 line <&"${SERVER[0]}"; do
        [ "$(jq -r '.id // empty' <<< "$line")" = "$1" ] && { echo "$line"; return; }
    done
    echo "no response to $1: $(cat "$WORK/err")"
}
call() { # id, tool, arguments
    send '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"'"$2"'","arguments":'"$3"'}}'
    answer "$1"
}
stop() { # signal
    local pid=$SERVER_PID
    # The coprocess is a shell that waits for the program.
    pkill -"$1" -P "$pid" 2> /dev/null || kill -"$1" "$pid" 2> /dev/null
    wait "$pid" 2> /dev/null
}

alternating() {
    local round build
    for round in 1 2 3 4 5 6; do
        build=$([ $((round % 2)) = 1 ] && echo "$OLD" || echo "$NEW")
        run "$build" keeper
        run "$build" helper
        same "round $round, written by $(name "$build")"
        check "turns in round $round" "$(turns "$OLD"),$(turns "$NEW")" "$round,$round"
    done
}

# A session entry as a program writes it.
entry() { # key
    printf '{"agent":"keeper","key":"%s","state":"ready","session_id":"0b4a6f0e-4d7e-4c6e-9d43-6f1a4cbb3f11","turns":1,"cost_usd":0.0,"created":"2026-01-01T00:00:00Z","last_used":"2026-01-01T00:00:00Z","last_run":"019a8d5ce1d27c0b8e6a3f0f3f0a1b2c","folder":"/work","config_dir":"/nowhere","contract":"sha256:0"}' "$1"
}

# More than 200 sessions: changes are lines of a journal. One build writes, the other goes on.
journals() { # first build, second build
    local first=$1 second=$2 data=$WORK/project/data label key
    label="$(name "$first") then $(name "$second")"
    project
    mkdir -p "$data"
    {
        printf '{"format":1,"conversations":['
        for key in $(seq 1000 1249); do entry "k$key"; printf ','; done
        entry k2000
        printf ']}'
    } > "$data/sessions.json"
    # A server that is killed after its answer and before it compacts leaves its lines in the journal.
    start "$first" serve
    call 2 run_subagent '{"agent_name":"keeper","prompt":"FAKE result done"}' > "$WORK/out"
    stop KILL
    RUNS=$((RUNS + 1))
    check "$label: a journal is left" "$([ -s "$data/sessions.journal" ] && echo lines)" lines
    check "$label: the journal is read" "$(sessions "$second" | jq length)" 252
    same "$label: a journal that is not compacted"
    adjutant "$first" sessions forget keeper@k1000 > "$WORK/out" 2>&1
    adjutant "$second" sessions forget keeper@k1001 > "$WORK/out" 2>&1
    check "$label: both append" "$(sessions "$first" | jq length),$(sessions "$second" | jq length)" 250,250
    printf '{"put":{"agent":"keeper","key":"to' >> "$data/sessions.journal"
    same "$label: a torn line in the journal of sessions"
    adjutant "$second" sessions forget keeper@k1002 > "$WORK/out" 2>&1
    check "$label: the torn line is written over" "$(sessions "$first" | jq length),$(sessions "$second" | jq length)" 249,249
    printf '{"time":"2026-11-16T10:0' >> "$data/costs-0.journal"
    same "$label: a torn line in the journal of costs"
    run "$second" keeper
    check "$label: the session goes on" "$(turns "$first")" "$(($(sessions "$second" | jq length) + 1))"
    same "$label: the torn line in the journal of costs is written over"
    # 999 lines: the next payment compacts.
    local filler
    filler=$(head -n 1 "$data/costs-0.journal" | jq -c '.cost_usd = 0 | .ended = 0')
    for _ in $(seq "$((999 - $(wc -l < "$data/costs-0.journal")))"); do echo "$filler"; done >> "$data/costs-0.journal"
    run "$second" helper
    check "$label: the costs are compacted" "$(jq .journal "$data/costs.json")" 1
    run "$first" helper
    run "$second" helper
    same "$label: costs after a compaction"
    # A kill between the two writes of the audit log, and in the middle of an event.
    printf '{"format":1,"seq":99' >> "$data/audit.jsonl"
    printf '{"format":1,"seq":99' >> "$data/events.jsonl"
    run "$second" helper
    same "$label: torn lines in the audit log and the events"
}

tokens() { # first build, second build
    local first=$1 second=$2
    adjutant "$first" token new "of-$(name "$first")" > "$WORK/out" 2>&1
    adjutant "$second" token new "of-$(name "$second")" > "$WORK/out" 2>&1
    same "tokens of both"
    adjutant "$second" token revoke "of-$(name "$first")" > "$WORK/out" 2>&1
    check 'tokens after a revocation' "$(adjutant "$first" token list --json | jq -c '[.[].caller]')" "[\"of-$(name "$second")\"]"
    adjutant "$first" token revoke "of-$(name "$second")" > "$WORK/out" 2>&1
}

# An MCP server whose tool is described by the words.
describe() { # words
    cat > "$WORK/project/server.sh" <<'SERVER'
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
  *'"tools/list"'*) result='{"tools":[{"name":"read","description":"'$1'","inputSchema":{"type":"object"}}]}' ;;
  *) result='{}' ;;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
SERVER
    jq -n --arg words "$1" '{mcpServers: {s: {command: "sh", args: ["server.sh", $words]}}}' > "$WORK/project/.mcp.json"
    echo '{"agents": {"dev": {"allow": {"servers": ["*"]}}}}' > "$WORK/project/.mcp-gateway-rules.json"
}

changed_tools() { # build
    start "$1" gateway
    call 2 get_server_tools '{"agent_id":"dev","server":"s"}' > "$WORK/out"
    call 3 get_gateway_status '{"agent_id":"dev"}' > "$WORK/out"
    jq -c '.result.structuredContent.changed_tools // {}' "$WORK/out"
    stop TERM
}

pins() { # first build, second build
    local label
    label="$(name "$1") then $(name "$2")"
    rm -f "$WORK/project/data/tool-pins.json"
    describe one
    check "$label: a new tool" "$(changed_tools "$1")" '{}'
    describe two
    check "$label: a changed tool" "$(changed_tools "$2")" '{"s":["read"]}'
    check "$label: the change is remembered" "$(changed_tools "$1")" '{"s":["read"]}'
    adjutant "$2" trust s > "$WORK/out" 2>&1 || check "$label: trust" "$(cat "$WORK/out")" success
    check "$label: an accepted tool" "$(changed_tools "$1")" '{}'
}

# Both builds at once: every run is paid once, every turn is recorded, the audit chain is whole.
at_once() {
    local build worker arguments unkept
    project
    : > "$WORK/notes"
    for worker in 1 2; do
        for build in "$OLD" "$NEW"; do
            for _ in 1 2 3 4 5; do
                for arguments in keeper helper "keeper --session-key own-$worker"; do
                    # shellcheck disable=SC2086
                    adjutant "$build" run $arguments 'FAKE result done' > /dev/null 2>> "$WORK/notes" ||
                        echo "a run of $(name "$build") failed"
                done
            done &
        done
    done > "$WORK/failed"
    wait
    check 'all runs at once succeed' "$(cat "$WORK/failed")" ''
    RUNS=60
    same 'both at once'
    # Builds up to 7d21737 remove staged files of others, whose writes then fail with this note.
    unkept=$(grep -c '^note: the conversation could not be kept' "$WORK/notes")
    if [ "$unkept" = 0 ]; then
        check 'both at once: turns' "$(turns "$OLD"),$(turns "$NEW")" 40,40
    else
        echo "both at once: $unkept turns were not kept, and their callers were told"
    fi
    check 'both at once: entries of the audit log' "$(adjutant "$NEW" audit --verify --json | jq .lines)" 60
}

project
alternating
journals "$OLD" "$NEW"
tokens "$OLD" "$NEW"
pins "$OLD" "$NEW"
journals "$NEW" "$OLD"
tokens "$NEW" "$OLD"
pins "$NEW" "$OLD"
at_once
echo "$CHECKS checks, $FAILURES failed"
[ "$FAILURES" = 0 ]
