# shellcheck shell=bash
# story.sh: sourced by scripts that show a world to somebody who watches: what happens, when, and the commands with what they answer.
began=$(date +%s%N)
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"

bold='' dim='' off=''
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; fi
elapsed() { printf '%5.1f s' "$(( ($(date +%s%N) - began) / 1000000 ))e-3"; }
say() { printf '\n%s[%s] %s%s\n' "$bold" "$(elapsed)" "$*" "$off"; }
show() { printf '%s$ %s%s\n' "$dim" "$*" "$off"; "$@" 2>&1 | sed 's/^/  /'; }
