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
# All stages share what is built once: with assertions, and fast enough for simulations and data.
profile=(--profile ci)
# Programs of tests that measure rates, so that each runs alone.
measuring_tests="doctor_paths cp_transports cp_limits"
# Programs of tests that take longest.
slow_tests="cp_killed storage_errors cp_outage cp_adversary cp_refused interop_streams cp_options cp_trees serve"
# Wherever the environment or Cargo's configuration have put it.
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/') || exit 1
farhaul=$target/ci/farhaul
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The command, as the tests have it: features and all.
build_farhaul() { cargo test --quiet "${profile[@]}" --workspace --all-features --no-run --test command_line; }

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

stage_lint() { cargo clippy "${profile[@]}" --workspace --all-targets --all-features --quiet -- -D warnings; }

# What is depended on: licences, sources, duplicates, and known advisories (deny.toml).
stage_deny() {
    if ! cargo deny --version >/dev/null 2>&1 && ! cargo install --debug --quiet --locked cargo-deny >"$log" 2>&1; then
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
        CARGO_TARGET_DIR=$target/races TSAN_OPTIONS=halt_on_error=1 \
        cargo +nightly test --quiet -Zbuild-std --target "$host" -p farhaul-mover --lib -- \
        transfer::channel transfer::source::desk transfer::part transfer::sink::workers \
        transfer::pace transfer::detour
}

# Most programs of tests wait more than they compute, so several run at once; those that measure run before.
stage_test() {
    local out=$target/tests names
    rm -rf "$out"
    mkdir -p "$out"
    cargo test --workspace --all-features --no-run "${profile[@]}" >"$log" 2>&1 ||
        { cat "$log"; return 1; }
    # What cargo selects each program by; those that take longest come first.
    names=$({
        printf -- '--test %s\n' $measuring_tests $slow_tests
        sed -n -e 's|^  Executable tests/.*/\([^/]*\)-[0-9a-f]*)$|--test \1|p' \
            -e 's|^  Executable unittests examples/\(.*\)\.rs .*|--example \1|p' "$log" | sort
        echo '--lib --bins'
        echo --doc
    } | awk '!seen[$0]++')
    export -f run_tests
    local alone
    alone=$(wc -w <<<"$measuring_tests")
    run_all() { xargs -P "$1" -I '{}' bash -c 'run_tests "$@"' _ "$out" "${profile[*]}" '{}'; }
    head -n "$alone" <<<"$names" | run_all 1
    tail -n "+$((alone + 1))" <<<"$names" | run_all "${TEST_PROGRAMS:-3}"
    cat "$out"/*.log >"$log"
    local count
    count() { grep '^test result' "$log" | grep -oE "$1" | awk '{n += $1} END {print n + 0}'; }
    echo "tests: $(count '[0-9]+ passed') passed, $(count '[0-9]+ failed') failed, $(grep -c '^skipped:' "$log") skipped"
    [ ! -e "$out/failed" ]
}

# run_tests OUT PROFILE SELECTION: the tests that cargo selects by that, from what is built. The output of
# those that pass is kept too, for it holds the reasons of those skipped.
run_tests() {
    local file="$1/${3//[ -]/}.log" start=$SECONDS
    # shellcheck disable=SC2086 # several words each
    cargo test --workspace --all-features --no-fail-fast $2 $3 -- --show-output >"$file" 2>&1 ||
        echo "FAILED: $3" | tee -a "$1/failed"
    echo "$3: $((SECONDS - start)) s"
    grep -E '^(test result|error|warning|failures:|thread .* panicked|assertion|skipped:|  left|  right)|^test .* FAILED' "$file"
}

# Every test that has a long form, one program after the other. What was measured, and what was
# skipped, is kept in figures.txt beside the whole output of each.
stage_long() {
    stage_packages
    local out=$target/long file name crate selection status=0
    mkdir -p "$out"
    : >"$out/figures.txt"
    # Programs of tests, and crates with such tests beside the code.
    for file in $(grep -lE '\blong\(\)|FARHAUL_LONG' crates/*/tests/*.rs) \
        $(grep -rl FARHAUL_LONG crates/*/src | sed 's|/src/.*|/src/lib.rs|' | sort -u); do
        crate=${file%/tests/*}
        crate=${crate%/src/*}
        name=$(basename "$file" .rs)
        case $file in
            */src/*) selection=(--lib) name=${crate#crates/} ;;
            *) selection=(--test "$name") ;;
        esac
        FARHAUL_LONG=1 cargo test --release --manifest-path "$crate/Cargo.toml" "${selection[@]}" -- --nocapture 2>&1 |
            tee "$out/$name.log" |
            grep -E --line-buffered '^(measured:|skipped:|test |FARHAUL_SEED|thread .* panicked|error)' |
            sed -u "s/^/$name: /" | tee -a "$out/figures.txt"
        [ "${PIPESTATUS[0]}" = 0 ] || status=1
    done
    echo "figures: $out/figures.txt"
    return "$status"
}

stage_doc() { RUSTDOCFLAGS="-D warnings" cargo doc "${profile[@]}" --workspace --all-features --no-deps --quiet; }

# Each fuzz target for a few seconds. Needs a nightly toolchain; FUZZ_SECONDS for longer.
stage_fuzz() {
    if ! rustup toolchain list 2>/dev/null | grep -q nightly; then
        echo "skipped: no nightly toolchain for fuzzing"
        return 0
    fi
    if ! cargo fuzz --version >/dev/null 2>&1 && ! cargo install --debug --quiet cargo-fuzz; then
        echo "skipped: cargo-fuzz cannot be installed"
        return 0
    fi
    (cd fuzz && cargo +nightly fuzz build --dev -s none) >"$log" 2>&1 || { tail -40 "$log"; return 1; }
    export -f run_fuzz
    (cd fuzz && cargo +nightly fuzz list) | xargs -P "$(nproc)" -I '{}' bash -c 'run_fuzz {}'
}

# run_fuzz TARGET: without a sanitizer of memory, as what is fuzzed has no unsafe code.
run_fuzz() {
    local log
    log=$(mktemp)
    cd fuzz && mkdir -p "corpus/$1" || return 1
    if cargo +nightly fuzz run --dev -s none "$1" "corpus/$1" "seeds/$1" -- \
        -max_total_time="${FUZZ_SECONDS:-5}" -verbosity=0 -print_final_stats=0 >"$log" 2>&1; then
        echo "fuzz $1: ok"
    else
        tail -40 "$log"
        echo "FAILED: fuzz $1"
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# Random networks and flows, simulated; SIMFUZZ_SECONDS for longer.
stage_simfuzz() {
    build_farhaul || return 1
    "$farhaul" sim fuzz --runs 100000 --time "${SIMFUZZ_SECONDS:-20}s" --into "$target/simfuzz"
}

# The reduced version of every experiment, and the page of all.
stage_lab() {
    rm -rf "$target/lab-quick"
    build_farhaul || return 1
    "$farhaul" lab report --quick --out "$target/lab-quick"
}

# A sweep over a Dask cluster on this machine. Needs the packages of lab/requirements.txt.
stage_dask() {
    command -v python3 >/dev/null || { echo "skipped: no python3"; return 0; }
    local venv=$target/dask-venv
    if ! [ "$venv/complete" -nt lab/requirements.txt ]; then
        python3 -m venv "$venv" >"$log" 2>&1 ||
            { echo "skipped: no Python with venv: $(tail -1 "$log")"; return 0; }
        # Not bin/pip, which names the folder that it was made in: the target folder may have moved.
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r lab/requirements.txt >"$log" 2>&1 ||
            { echo "skipped: Dask cannot be installed: $(tail -1 "$log")"; return 0; }
        touch "$venv/complete"
    fi
    build_farhaul || return 1
    FARHAUL=$farhaul "$venv/bin/python" -m unittest -v lab/test_dask_sweep.py
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
