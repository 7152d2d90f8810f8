#!/usr/bin/env bash
# OpenAI's protocol through the proxy, by hand: a request, its answer, and a second request
# that sends the whole history again. The header `x-icecore-session` is the same.
#
#     icecore proxy --upstream https://api.openai.com/v1 &
#     OPENAI_API_KEY=… MODEL=gpt-5-mini examples/openai_curl.sh
set -euo pipefail

base="${OPENAI_BASE_URL:-http://127.0.0.1:7434/openai/v1}"
model="${MODEL:-gpt-5-mini}"

ask() { # the messages, and whether the answer shall stream
    curl -sSN --fail-with-body -D /dev/stderr "$base/chat/completions" \
        -H "Authorization: Bearer ${OPENAI_API_KEY:-none}" -H 'Content-Type: application/json' \
        -d "{\"model\":\"$model\",\"stream\":$2,\"messages\":$1}"
}

first='{"role":"user","content":"We leave on 4 May. Always answer in one sentence."}'
answer="$(ask "[$first]" false)"
echo "$answer"
reply="$(printf '%s' "$answer" | python3 -c '
import json, sys
message = json.load(sys.stdin)["choices"][0]["message"]
print(json.dumps({"role": "assistant", "content": message["content"]}))')"
ask "[$first,$reply,{\"role\":\"user\",\"content\":\"When do we leave?\"}]" true
