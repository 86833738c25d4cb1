#!/usr/bin/env bash
# Makes everything that kfs, its tests and its examples need, on a Debian machine that has Python and nothing else:
# Debian packages where they are missing, /dev/fuse, and the package itself in .venv beside this directory.
# Where all of it is there already, it does nothing and takes no time; compiled code is built again when its source changes.
#
#   scripts/setup.sh [EXTRA]      EXTRA, as in pyproject.toml: examples (default, those without Spark), test, or dev.
#                                 Each has what the one before it has.
#
# For test and dev it goes on without Debian packages that it may not install: tests that need them are skipped then.
#
# PYTHON names the interpreter (3.11 or later) when it is not to be python3.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
extra=${1:-examples}
python=${PYTHON:-python3}

# What has to be there, and the Debian package that brings it: a command, or with is_ a function that says whether it is.
needed=(fusermount3:fuse3 jq:jq rsync:rsync ps:procps)
# Tests need all that kfs works with: Java for Spark, Kafka and ZooKeeper, whose jars are fetched where they are wanted;
# Redis; both generations of libfuse; the shells that kfs completes for; a compiler, for kfs itself and for a benchmark.
[[ $extra == examples ]] || needed+=(
    java:default-jre-headless redis-server:redis-server zsh:zsh fish:fish
    cc:gcc is_libc_dev:libc6-dev is_python_dev:python3-dev
    is_libfuse2:libfuse2 is_libfuse3_dev:libfuse3-dev pkg-config:pkg-config
)
readonly needed

[[ $extra =~ ^(examples|test|dev)$ ]] || { echo "setup: there is no '$extra': choose examples, test or dev" >&2; exit 2; }

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
    command -v apt-get >/dev/null || { lacks_packages "please install what Debian calls: ${packages[*]}"; return; }
    can_be_root || { lacks_packages "$by_hand"; return; }
    say "installing ${packages[*]} with apt-get"
    # A source that cannot be reached fails the update, and matters only if the packages are not found then.
    quietly as_root apt-get update || say "apt-get update failed; trying with the lists there are"
    quietly as_root env DEBIAN_FRONTEND=noninteractive "${install[@]}" || lacks_packages "$by_hand"
}

# What kfs can't be installed without, or an example be shown, is missed at once; the tests say at the end what they missed.
lacks_packages() {
    if [[ $extra == examples ]] || ! has_venv; then fail "$1"; fi
    say "going on without some packages; for all tests to run, $1"
}

missing_packages() {
    local entry what
    for entry in "${needed[@]}"; do
        what=${entry%%:*}
        if [[ $what == is_* ]]; then "$what"; else command -v "$what" >/dev/null; fi || echo "${entry##*:}"
    done
    has_venv || "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

is_libfuse2() { PATH=$PATH:/sbin ldconfig -p | grep -q 'libfuse\.so\.2'; }

is_libfuse3_dev() { compgen -G '/usr/include/fuse3/fuse_lowlevel.h' >/dev/null; }

is_libc_dev() { [[ -e /usr/include/stdlib.h ]]; }

is_python_dev() {
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
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
    local packages sources
    packages="$root $("$python" -V) $(sha256sum <pyproject.toml)"
    sources=$(hash_of_compiled_sources)
    if ! is_installed "$packages"; then
        say "installing kfs and its Python packages in $venv"
        [[ $("$venv/bin/python" -V 2>&1) == "$("$python" -V)" ]] || "$python" -m venv --clear "$venv"
        rm -f "$venv/.kfs-setup" "$venv/.kfs-sources"
        install_editable ".[$extra]"
    elif [[ $(cat "$venv/.kfs-sources" 2>/dev/null) != "$sources" ]]; then
        say "building kfs's compiled code"
        rm -f "$venv/.kfs-sources"
        install_editable --no-deps .
    fi
    [[ -e $venv/.kfs-setup ]] || echo "$extra $packages" >"$venv/.kfs-setup"
    [[ -e $venv/.kfs-sources ]] || echo "$sources" >"$venv/.kfs-sources"
}

# Builds by content, as the times of files say little after a checkout; what was built before would look up to date.
install_editable() {
    find kfs -name '*.so' -delete -o -name '*.c' -delete
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check "${@:1:$#-1}" -e "${!#}" ||
        fail "pip could not install kfs in $venv"
}

hash_of_compiled_sources() {
    find setup.py kfs -name setup.py -o -name '*.pyx' -o -name '*.px[di]' -o -name '*.h' | LC_ALL=C sort | xargs sha256sum | sha256sum
}

# What was installed with more serves for less as well.
is_installed() {
    local enough more=(dev)
    [[ $extra != examples ]] || more+=(test)
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
