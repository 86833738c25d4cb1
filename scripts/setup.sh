#!/usr/bin/env bash
# Makes everything that kfs, its tests and its examples need, on a Debian machine that has Python and nothing else:
# Debian packages where they are missing, /dev/fuse, and the package itself in .venv beside this directory.
# Where all of it is there already, it does nothing and takes no time.
#
#   scripts/setup.sh [EXTRA]      EXTRA, as in pyproject.toml: test (default), spark (with test), or dev (all there is)
#
# PYTHON names the interpreter (3.11 or later) when it is not to be python3.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
extra=${1:-test}
python=${PYTHON:-python3}

# A command that has to be there, and the Debian package that brings it.
commands=(fusermount3:fuse3 jq:jq rsync:rsync ps:procps)
# Spark needs Java. So do Kafka and ZooKeeper, whose jars are fetched where they are wanted; jobs may keep where they are in
# Redis. The tests do without what isn't there, except where everything is checked.
[[ $extra == test ]] || commands+=(java:default-jre-headless redis-server:redis-server)
readonly commands

say() { echo "setup: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    cd "$root"
    # One set-up at a time; tests may run several examples at once.
    exec 9<pyproject.toml
    flock 9
    unset PYTHONHOME PYTHONPATH PIP_USER
    check_python
    install_debian_packages
    provide_fuse_device
    install_kfs
}

check_python() {
    command -v "$python" >/dev/null || fail "there is no '$python'; kfs needs Python 3.11 or later (or set PYTHON)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "'$python' is $("$python" -V); kfs needs Python 3.11 or later (set PYTHON to one)"
    has_venv || from_debian ||
        fail "'$python' cannot make virtual environments (it has no ensurepip); set PYTHON to one that can"
}

# Debian's Python has venv, but without a further package not the pip to put in one.
has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

from_debian() { [[ $("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))') == /usr/bin/* ]]; }

install_debian_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    local install=(apt-get install -y --no-install-recommends "${packages[@]}")
    local by_hand="please run as root: apt-get update && ${install[*]}"
    command -v apt-get >/dev/null || fail "please install what Debian calls: ${packages[*]}"
    can_be_root || fail "$by_hand"
    say "installing ${packages[*]} with apt-get"
    # A source that cannot be reached fails the update, and matters only if the packages are not found then.
    quietly as_root apt-get update || say "apt-get update failed; trying with the lists there are"
    quietly as_root env DEBIAN_FRONTEND=noninteractive "${install[@]}" || fail "$by_hand"
}

missing_packages() {
    local entry
    for entry in "${commands[@]}"; do
        command -v "${entry%%:*}" >/dev/null || echo "${entry##*:}"
    done
    # The tests also go through the older libfuse; the newer one comes with fuse3.
    PATH=$PATH:/sbin ldconfig -p | grep -q 'libfuse\.so\.2' || echo libfuse2
    has_venv || "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

# Some containers have the kernel's FUSE, but not the device.
provide_fuse_device() {
    if [[ ! -c /dev/fuse ]] && can_be_root; then
        as_root modprobe fuse 2>/dev/null || true
        [[ -c /dev/fuse ]] || quietly as_root mknod -m 666 /dev/fuse c 10 229 || true
    fi
    # Opening it harms nothing, and shows what a container forbids.
    (: <>/dev/fuse) 2>/dev/null ||
        say "/dev/fuse cannot be opened, so nothing can be mounted here (in a container: --device /dev/fuse --cap-add SYS_ADMIN)"
}

install_kfs() {
    local state
    state="$root $("$python" -V) $(sha256sum <pyproject.toml)"
    ! is_installed "$state" || return 0
    say "installing kfs and its Python packages in $venv"
    [[ $("$venv/bin/python" -V 2>&1) == "$("$python" -V)" ]] || "$python" -m venv --clear "$venv"
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check -e ".[test,$extra]" ||
        fail "pip could not install kfs in $venv"
    echo "$extra $state" >"$venv/.kfs-setup"
}

# What was installed with more serves for less as well.
is_installed() {
    local enough more=(dev)
    [[ $extra != test ]] || more+=(spark)
    for enough in "$extra" "${more[@]}"; do
        ! grep -qxF -e "$enough $1" "$venv/.kfs-setup" 2>/dev/null || return 0
    done
    return 1
}

can_be_root() { ((EUID == 0)) || command -v sudo >/dev/null; }

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif [[ -t 0 ]]; then
        sudo "$@"
    else
        # Nobody could type a password.
        sudo -n "$@"
    fi
}

# Shows the output of a command only when it fails.
quietly() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    ((status == 0)) || printf '%s\n' "$output" >&2
    return "$status"
}

main
