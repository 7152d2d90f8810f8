#!/usr/bin/env bash
# Anthropic's protocol through the proxy, by hand: a request, its answer, and a second
# request that sends the whole history again. The header `x-icecore-session` is the same.
#
#     icecore proxy --upstream https://api.anthropic.com/v1 &
#     ANTHROPIC_API_KEY=… MODEL=claude-haiku-4-5 examples/anthropic_curl.sh
set -euo pipefail

base="${ANTHROPIC_BASE_URL:-http://127.0.0.1:7434/anthropic}"
model="${MODEL:-claude-haiku-4-5}"

ask() { # the messages, and whether the answer shall stream
    curl -sSN --fail-with-body -D /dev/stderr "$base/v1/messages" \
        -H "x-api-key: ${ANTHROPIC_API_KEY:-none}" -H 'anthropic-version: 2023-06-01' \
        -H 'Content-Type: application/json' \
        -d "{\"model\":\"$model\",\"max_tokens\":60,\"stream\":$2,\"messages\":$1}"
}

first='{"role":"user","content":"We leave on 4 May. Always answer in one sentence."}'
answer="$(ask "[$first]" false)"
echo "$answer"
reply="$(printf '%s' "$answer" | python3 -c '
import json, sys
content = json.load(sys.stdin)["content"]
print(json.dumps({"role": "assistant", "content": content}))')"
ask "[$first,$reply,{\"role\":\"user\",\"content\":\"When do we leave?\"}]" true
