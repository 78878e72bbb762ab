#!/bin/sh
# Runs a target under libFuzzer, guided by coverage, with the stable compiler:
# sh fuzz/run.sh TARGET [options of libFuzzer]
set -eu
cd "$(dirname "$0")"
target=$1
shift
mkdir -p "corpus/$target" "artifacts/$target"
seeds=../tests/fuzz/seeds/$target
if [ "$target" = checkpoint ]; then
    # Checkpoints depend on the version, so they are made here: with finite times and for infinite
    # time.
    seeds=
    for time in 1,2 inf; do
        cargo run --quiet --locked --manifest-path ../Cargo.toml -p kolmo-cli --no-default-features -- transient tandem:3 \
            --time "$time" --device cpu --checkpoint "corpus/checkpoint/seed-$time" --checkpoint-every 0 --top 1 --quiet >/dev/null
    done
fi
# The compiler options of cargo-fuzz, without sanitizers, which need a nightly compiler.
export RUSTFLAGS='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks'
host=$(rustc -vV | sed -n 's/^host: //p')
case $target in
prism) program=prism ;;
*) program=all ;;
esac
export KOLMO_FUZZ_TARGET="$target"
cargo build --locked --release --target "$host" --bin "$program"
# shellcheck disable=SC2086 # one folder, or none
exec "target/$host/release/$program" -artifact_prefix="artifacts/$target/" -rss_limit_mb=8192 -timeout=30 -max_len=65536 "$@" \
    "corpus/$target" $seeds
