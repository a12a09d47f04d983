#!/usr/bin/env bash
# Everything that must hold, in named stages: ./ci.sh [STAGE…]; without arguments all of them.
#
# The stage `long` runs only if it is named: every test that has a long form, in it. That takes hours.
# So does `races`, which takes minutes.
#
# On a Debian machine, as root or with sudo, it installs the programs that tests need. Where one
# cannot be installed, the tests that need it say "skipped: why", and the stage counts them.
set -uo pipefail
cd "$(dirname "$0")"
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(packages fmt lint deny test doc fuzz simfuzz lab dask)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

stage_packages() {
    local missing=() need
    # sshd and mkfs are not in the path of users.
    local PATH=$PATH:/usr/sbin
    for need in c++:g++ make:make tshark:tshark ip:iproute2 unshare:util-linux python3:python3 \
        mandoc:mandoc ssh:openssh-client sshd:openssh-server mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs \
        mkfs.btrfs:btrfs-progs losetup:mount strace:strace setfattr:attr \
        faketime:faketime; do
        command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
    done
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ -e /usr/include/udt/udt.h ] || [ -e /usr/include/udt.h ] || missing+=(libudt-dev)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || { echo "no apt-get: without ${missing[*]}"; return 0; }
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo -n)
    export DEBIAN_FRONTEND=noninteractive
    "${sudo[@]}" apt-get update -qq &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null ||
        echo "could not install ${missing[*]}: tests that need them will be skipped"
    return 0
}

stage_fmt() { cargo fmt --all --check; }

stage_lint() { cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings; }

# What is depended on: licences, sources, duplicates, and known advisories (deny.toml).
stage_deny() {
    if ! cargo deny --version >/dev/null 2>&1 && ! cargo install --quiet --locked cargo-deny >"$log" 2>&1; then
        echo "skipped: cargo-deny cannot be installed"
        return 0
    fi
    cargo deny check --hide-inclusion-graph licenses bans sources || return 1
    if ! cargo deny fetch db >"$log" 2>&1; then
        echo "skipped: advisory database not reachable"
        return 0
    fi
    cargo deny check --disable-fetch advisories
}

# The locks of the mover under ThreadSanitizer, for which the standard library is built anew.
stage_races() {
    if ! rustup toolchain list 2>/dev/null | grep -q nightly; then
        echo "skipped: no nightly toolchain for ThreadSanitizer"
        return 0
    fi
    if ! rustup component add --toolchain nightly rust-src >"$log" 2>&1; then
        echo "skipped: no source of the standard library: $(tail -1 "$log")"
        return 0
    fi
    local host
    host=$(rustc +nightly -vV | sed -n 's/^host: //p')
    # Blocking and lending between threads; single-threaded tests would only be slower.
    CARGO_PROFILE_DEV_DEBUG=line-tables-only RUSTFLAGS=-Zsanitizer=thread \
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/races TSAN_OPTIONS=halt_on_error=1 \
        cargo +nightly test --quiet -Zbuild-std --target "$host" -p farhaul-mover --lib -- \
        transfer::channel transfer::source::desk transfer::part transfer::sink::workers \
        transfer::pace transfer::detour
}

stage_test() {
    # The output of tests that pass is shown too: it holds the reasons of those skipped.
    cargo test --workspace --all-features --no-fail-fast -- --show-output 2>&1 | tee "$log" |
        grep -E --line-buffered '^(     Running|   Doc-tests|test result|error|warning|failures:|---- .* stdout|thread .* panicked|assertion|skipped:|  left|  right)|^test .* FAILED'
    local status=${PIPESTATUS[0]}
    local count
    count() { grep -oE "$1" "$log" | awk '{n += $1} END {print n + 0}'; }
    echo "tests: $(count '[0-9]+ passed') passed, $(count '[0-9]+ failed') failed, $(grep -c '^skipped:' "$log") skipped"
    return "$status"
}

# Every test that has a long form, one program after the other. What was measured, and what was
# skipped, is kept in figures.txt beside the whole output of each.
stage_long() {
    stage_packages
    local out file name crate status=0
    out=$(readlink -m "${CARGO_TARGET_DIR:-target}/long")
    mkdir -p "$out"
    : >"$out/figures.txt"
    for file in $(grep -lE '\blong\(\)|FARHAUL_LONG' crates/*/tests/*.rs); do
        name=$(basename "$file" .rs)
        crate=${file%/tests/*}
        FARHAUL_LONG=1 cargo test --release --manifest-path "$crate/Cargo.toml" --test "$name" -- --nocapture 2>&1 |
            tee "$out/$name.log" |
            grep -E --line-buffered '^(measured:|skipped:|test |FARHAUL_SEED|thread .* panicked|error)' |
            sed -u "s/^/$name: /" | tee -a "$out/figures.txt"
        [ "${PIPESTATUS[0]}" = 0 ] || status=1
    done
    echo "figures: $out/figures.txt"
    return "$status"
}

stage_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --quiet; }

# Each fuzz target for a few seconds. Needs a nightly toolchain; FUZZ_SECONDS for longer.
stage_fuzz() {
    if ! rustup toolchain list 2>/dev/null | grep -q nightly; then
        echo "skipped: no nightly toolchain for fuzzing"
        return 0
    fi
    if ! cargo fuzz --version >/dev/null 2>&1 && ! cargo install --quiet cargo-fuzz; then
        echo "skipped: cargo-fuzz cannot be installed"
        return 0
    fi
    local target
    for target in $(cd fuzz && cargo +nightly fuzz list); do
        echo "fuzz $target"
        mkdir -p "fuzz/corpus/$target"
        (cd fuzz && cargo +nightly fuzz run "$target" "corpus/$target" "seeds/$target" -- \
            -max_total_time="${FUZZ_SECONDS:-5}" -verbosity=0 -print_final_stats=0) >"$log" 2>&1 ||
            { tail -40 "$log"; return 1; }
    done
}

# Random networks and flows, simulated; SIMFUZZ_SECONDS for longer.
stage_simfuzz() {
    cargo run --quiet --release -p farhaul-cli -- \
        sim fuzz --runs 100000 --time "${SIMFUZZ_SECONDS:-20}s" --into "${CARGO_TARGET_DIR:-target}/simfuzz"
}

# The reduced version of every experiment, and the page of all.
stage_lab() {
    local out=${CARGO_TARGET_DIR:-target}/lab-quick
    rm -rf "$out"
    cargo run --quiet --release -p farhaul-cli -- lab report --quick --out "$out"
}

# A sweep over a Dask cluster on this machine. Needs the packages of lab/requirements.txt.
stage_dask() {
    command -v python3 >/dev/null || { echo "skipped: no python3"; return 0; }
    # Wherever the environment or Cargo's configuration have put it.
    local target venv
    target=$(cargo metadata --format-version 1 --no-deps |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])') || return 1
    venv=$target/dask-venv
    if ! [ "$venv/complete" -nt lab/requirements.txt ]; then
        python3 -m venv "$venv" >"$log" 2>&1 ||
            { echo "skipped: no Python with venv: $(tail -1 "$log")"; return 0; }
        # Not bin/pip, which names the folder that it was made in: the target folder may have moved.
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r lab/requirements.txt >"$log" 2>&1 ||
            { echo "skipped: Dask cannot be installed: $(tail -1 "$log")"; return 0; }
        touch "$venv/complete"
    fi
    cargo build --quiet --release -p farhaul-cli || return 1
    FARHAUL=$target/release/farhaul "$venv/bin/python" -m unittest -v lab/test_dask_sweep.py
}

failed=()
for stage in "${stages[@]}"; do
    echo "== $stage"
    start=$SECONDS
    "stage_$stage" || failed+=("$stage")
    echo "== $stage: $((SECONDS - start)) s"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
