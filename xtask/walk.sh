# What the walks of newcomers and of operators share. Sourced, not run.
# shellcheck shell=bash

began=$SECONDS
done_with() { say "ok: $1 ($((SECONDS - began)) s)"; }

# begin_run PLACE: starts ./run under PLACE; its process is `pid`, and what it says is in PLACE/said.
begin_run() {
  # What is started in the background has Ctrl-C ignored.
  env --default-signal=INT ./run "$1/run" >"$1/said" &
  pid=$!
}

# shows_node PLACE: waits until that ./run has said all.
shows_node() {
  until grep -q '^  stop' "$1/said"; do
    kill -0 "$pid" 2>/dev/null || { say "./run ended"; return 1; }
    sleep 1
  done
}

# end_run: as Ctrl-C does.
end_run() {
  kill -s INT "$pid"
  wait "$pid"
}
