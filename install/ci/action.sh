#!/usr/bin/env bash
# The steps of action.yml: "action.sh key", "action.sh build", "action.sh programs" and
# "action.sh lint".
#
# What the author of a workflow, or of a pull request, can choose comes in variables and
# is never part of a command's text: neither a quote nor $(...) in it means anything.
# It runs with macOS' bash, 3.2, where an empty array counts as a variable that is not set.
set -euo pipefail

main() {
  local key folder
  cd "$GITHUB_ACTION_PATH" || exit 2
  key=$(key_of runlevel cmd examples install internal manifests pkg go.mod go.sum)
  folder=$RUNNER_TEMP/$key
  runlevel=$folder/runlevel
  case ${1-} in
  key)
    output key "$key"
    output folder "$folder"
    output programs-key "$(key_of runlevel-control-plane sandbox/controlplane)"
    output programs "$(programs_folder)"
    ;;
  build) build ;;
  programs) programs ;;
  lint) lint ;;
  *) refuse "action.sh: use key, build, programs or lint" ;;
  esac
}

# key_of makes a key of a name, the machine and files: one program is told from another by
# the files it is built from. A runner has nothing else to go by: an action comes to it as
# files, without a repository.
key_of() {
  local name=$1 files
  shift
  files=$(find "$@" -type f | LC_ALL=C sort)
  printf '%s-%s-%s-' "$name" "$(uname -s)" "$(uname -m)"
  {
    printf '%s\n' "$files"
    printf '%s\n' "$files" | git hash-object --no-filters --stdin-paths
  } | git hash-object --no-filters --stdin
}

# build needs any Go since 1.21: it gets itself the one that go.mod asks for, whatever the
# job has set up for its own code. Git is not asked which commit this is: in a container,
# the files may be another user's, and git would refuse to say.
build() {
  if [ -x "$runlevel" ]; then
    return
  fi
  command -v go >/dev/null || refuse "runlevel is built with Go, and there is none: put a step with actions/setup-go before this one"
  CGO_ENABLED=0 GOTOOLCHAIN=auto GOWORK=off go build -mod=readonly -buildvcs=false -trimpath -tags=grpcnotrace -o "$runlevel" ./cmd/runlevel
}

# programs finds the programs of a control plane, or builds them, and says whether there is
# anything new to keep: where KUBEBUILDER_ASSETS has them all, nothing is built.
programs() {
  local folder before
  folder=$(programs_folder)
  before=$(ls "$folder" 2>/dev/null || true)
  GOTOOLCHAIN=auto "$runlevel" sandbox build || refuse "the control plane of the rehearsal could not be built; the log says why"
  if [ "$(ls "$folder" 2>/dev/null || true)" != "$before" ]; then
    output built true
  fi
}

# programs_folder is where runlevel keeps what it builds, in the user's cache.
programs_folder() {
  case $(uname -s) in
  Darwin) echo "${HOME-}/Library/Caches/runlevel/control-plane" ;;
  *) echo "${XDG_CACHE_HOME:-${HOME-}/.cache}/runlevel/control-plane" ;;
  esac
}

# lint ends with lint's own exit code: 1 for findings, 2 for what can't be done.
lint() {
  local code=0 errors warnings
  cd "$GITHUB_WORKSPACE"
  work=$(mktemp -d "$RUNNER_TEMP/runlevel.XXXXXXXXXX")
  read_inputs
  choose_outputs
  "${lint[@]}" "${outputs[@]}" -- "$manifests" >"$work/findings" 2>"$work/said" || code=$?
  cat "$work/findings"
  repeat_said
  if [ "$code" -gt 1 ]; then
    summary "**runlevel lint** could not look. The log of this step says why."
    refuse "runlevel lint could not look; the log says why"
  fi
  errors=$(count error)
  warnings=$(count warning)
  output errors "$errors"
  output warnings "$warnings"
  summary "**runlevel lint**: errors: $errors, warnings: $warnings"
  if [ -n "${INPUT_SARIF_FILE-}" ]; then
    output sarif "$INPUT_SARIF_FILE"
  fi
  write_plan
  exit "$code"
}

# read_inputs makes command lines of the inputs. A value stands behind its flag and "=",
# and what is no flag behind "--": nothing is taken for a flag that is not meant as one.
read_inputs() {
  manifests=${INPUT_MANIFESTS:-manifests}
  case ${INPUT_PLAN:-false} in
  true) [ -n "${INPUT_INTO-}${INPUT_PREVIOUS-}" ] || refuse "input plan: there is nothing to compare with: set into or previous, too" ;;
  false) ;;
  *) refuse "input plan: write true or false" ;;
  esac
  case ${INPUT_REHEARSE:-false} in
  true | false) ;;
  *) refuse "input rehearse: write true or false" ;;
  esac
  lint=("$runlevel" lint)
  plan=()
  split filters "${INPUT_FILTERS-}"
  lint+=(${words[@]+"${words[@]}"})
  plan+=(${words[@]+"${words[@]}"})
  split args "${INPUT_ARGS-}"
  lint+=(${words[@]+"${words[@]}"})
  if [ -n "${INPUT_COMPONENT-}" ]; then
    lint+=("--component=$INPUT_COMPONENT")
    plan+=("--component=$INPUT_COMPONENT")
  fi
  add_flag into "${INPUT_INTO-}"
  add_flag previous "${INPUT_PREVIOUS-}"
  add_flag baseline "${INPUT_BASELINE-}"
  add_flag config "${INPUT_CONFIG-}"
  add_flag fail-on "${INPUT_FAIL_ON-}"
  if [ "${INPUT_REHEARSE:-false}" = true ]; then
    lint+=(--rehearse)
  fi
  if [ -n "${INPUT_INTO-}" ]; then
    plan+=("--into=$INPUT_INTO" -- "$manifests")
  else
    plan+=(-- "${INPUT_PREVIOUS-}" "$manifests")
  fi
}

add_flag() {
  if [ -n "$2" ]; then
    lint+=("--$1=$2")
  fi
}

# split sets words to those of an input's value. Quotes keep blanks together, as in a
# shell, and that is all of a shell there is: xargs knows no other.
split() {
  local word
  words=()
  if [ -z "${2//[[:space:]]/}" ]; then
    return
  fi
  printf '%s\n' "$2" | xargs printf '%s\0' >"$work/words" || refuse "input $1: a quote is not closed"
  while IFS= read -r -d '' word; do
    words+=("$word")
  done <"$work/words"
}

# count says how many annotations of a kind there are. The code host shows ten of each.
count() {
  grep -c "^::$1[ :]" "$work/findings" || true
}

# choose_outputs makes flags of the formats: one run of lint, which may rehearse, writes all of them.
choose_outputs() {
  outputs=(-o github)
  if [ -n "${INPUT_SARIF_FILE-}" ]; then
    mkdir -p -- "$(dirname -- "$INPUT_SARIF_FILE")"
    outputs+=(-o "sarif=$INPUT_SARIF_FILE")
  fi
  if [ -n "${INPUT_HTML_FOLDER-}" ]; then
    mkdir -p -- "$INPUT_HTML_FOLDER"
    outputs+=(-o "html=$INPUT_HTML_FOLDER/lint.html")
  fi
}

# write_plan puts the plan into the summary, and writes its page. It never has more than 60,000 characters, and
# a summary may have a mebibyte. A release that is broken has no plan; lint has said so.
write_plan() {
  if [ "${INPUT_PLAN:-false}" = false ]; then
    return
  fi
  if [ -n "${INPUT_HTML_FOLDER-}" ]; then
    "$runlevel" plan -o html "${plan[@]}" >"$INPUT_HTML_FOLDER/plan.html" 2>/dev/null || rm -f -- "$INPUT_HTML_FOLDER/plan.html"
  fi
  if "$runlevel" plan -o markdown "${plan[@]}" >"$work/plan" 2>"$work/said"; then
    summary "$(cat "$work/plan")"
    return
  fi
  repeat_said
  summary "There is no plan. The log of this step says why."
}

# repeat_said prints what runlevel has said beside its output. Words of a pull request's
# author may be in it, so the runner is to take no commands from it. What ends that is
# the random part of a name, which nobody can know before.
repeat_said() {
  if [ -s "$work/said" ]; then
    echo "::stop-commands::${work##*.}"
    cat "$work/said"
    echo "::${work##*.}::"
  fi
}

summary() {
  printf '%s\n\n' "$1" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
}

# output sets an output. A value may have lines, and its mark is made of the whole of it,
# so that none of them can be the mark.
output() {
  local mark
  mark=$1-$(printf '%s' "$2" | git hash-object --stdin)
  printf '%s<<%s\n%s\n%s\n' "$1" "$mark" "$2" "$mark" >>"${GITHUB_OUTPUT:-/dev/null}"
}

refuse() {
  echo "::error title=runlevel::$1"
  exit 2
}

main "$@"
