#!/usr/bin/env bash
# Installs the peers that `tollgate-bench servers` holds us against, into target/tools/peers: throttlecrab-server, the module of
# redis-cell, and the library of limitador behind tonic. No test needs them. redis-server, nginx and Envoy come with
# `make setup`. What is built already is not built again. TOLLGATE_PEERS_BUILD is where it builds, if not below target/tools.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
peers="$root/target/tools/peers"
build="${TOLLGATE_PEERS_BUILD:-$root/target/tools/build}"
throttlecrab=0.4.40

say() { printf 'peers: %s\n' "$*"; }
fail() {
  printf 'peers: %s\n' "$*" >&2
  exit 1
}

# What is built elsewhere would miss what is found here.
unset CARGO_TARGET_DIR
command -v cargo >/dev/null || fail "cargo is missing: install Rust 1.88 or newer (rustup.rs)"
mkdir -p "$peers/bin" "$peers/lib"

if [[ $("$peers/bin/throttlecrab-server" --version 2>/dev/null || true) != *" $throttlecrab" ]]; then
  command -v protoc >/dev/null || fail "protoc is missing, which throttlecrab-server is built with: apt-get install protobuf-compiler"
  say "building throttlecrab-server $throttlecrab"
  # As good as ours is built.
  CARGO_PROFILE_RELEASE_LTO=true CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 cargo install --quiet --locked --force \
    --root "$peers" --target-dir "$build" "throttlecrab-server@$throttlecrab"
fi

# Named as what is built, not as what is depended on: otherwise it would want Rust's library beside it.
say "building redis-cell"
cargo build --quiet --release --locked --target-dir "$build/redis-cell" -p redis-cell \
  --manifest-path "$root/bench/peers/redis-cell/Cargo.toml" 2>"$peers/redis-cell.log" || {
  tail -n 20 "$peers/redis-cell.log" >&2
  fail "redis-cell cannot be built: see above"
}
cp "$build/redis-cell/release/libredis_cell.so" "$peers/lib/"

say "building the library of limitador behind tonic"
cargo build --quiet --release --locked --target-dir "$build" \
  --manifest-path "$root/bench/peers/limitador/Cargo.toml"
cp "$build/release/tollgate-peer-limitador" "$peers/bin/"
