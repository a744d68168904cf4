# shellcheck shell=bash
# Shared set-up of ./run, ./check and the Makefile: packages, build directories. Sourced by bash
# from the top of the tree. Installs only what is missing, and starts no service.

setup_packages_build=(gcc libc6-dev make meson ninja-build pkg-config nginx nginx-dev liblmdb-dev
    libhiredis-dev libpq-dev libmariadb-dev libsodium-dev libjansson-dev libcurl4-openssl-dev
    libmicrohttpd-dev libsqlite3-dev libcmocka-dev)
setup_packages_run=(curl util-linux)
setup_packages_test=(python3 python3-pytest mandoc mount openssl redis-server redis-sentinel
    postgresql pgbouncer mariadb-server spin)
setup_packages_lint=(clang-format cppcheck shellcheck)
setup_packages_clang_tidy=(clang-tidy)
setup_packages_bench=(wrk redis-server redis-tools postgresql
    mariadb-server mariadb-client)
setup_packages_cover=(lcov)

setup_say() { printf '%s\n' "$*" >&2; }
setup_die() { setup_say "$*"; exit 1; }

# Prints those of the named packages that are not installed.
setup_missing() {
    dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null |
        awk -v wanted="$*" '$1 == "ii" { have[$2] = 1 }
            END { count = split(wanted, names, " ")
                  for (i = 1; i <= count; i++) if (!(names[i] in have)) print names[i] }'
}

setup_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        setup_die "Packages must be installed, which only root may do: be root, or install sudo."
    fi
}

# apt-get without questions. While it runs, a policy-rc.d forbids packages to start their services,
# unless the machine has a policy of its own.
setup_apt_install() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    setup_as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C bash -c '
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            trap "rm -f $policy" EXIT
            printf "#!/bin/sh\nexit 101\n" >$policy
            chmod 755 $policy
        fi
        # Servers that are here for their programs alone shall not start with the machine either.
        enabled() {
            find /etc/systemd/system -path "*.wants/*" -name "*.service" 2>/dev/null | sort
        }
        before=$(enabled)
        apt-get update -qq
        for name in "$@"; do
            apt-cache show "$name" >/dev/null 2>&1 || {
                echo "This release has no package $name." \
                    "Debian 12, and Ubuntu 24.04 or later, have it."
                exit 1
            }
        done
        apt-get install -y -qq --no-install-recommends "$@"
        servers="nginx redis-server redis-sentinel postgresql pgbouncer mariadb"
        for link in $(comm -13 <(printf "%s\n" "$before") <(enabled)); do
            case " $servers " in *" $(basename "$link" .service) "*) rm -f "$link" ;; esac
        done' setup "$@" >&2
}

# Makes sure that the named packages are there.
setup_packages() {
    local missing
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        [ -n "${IDEM_NO_INSTALL:-}" ] && return
        setup_die "This is not Debian or Ubuntu. Install what these packages of Debian 12 hold, then
set IDEM_NO_INSTALL=1 and start again: $*"
    fi
    missing=$(setup_missing "$@")
    [ -z "$missing" ] && return
    if [ -n "${IDEM_NO_INSTALL:-}" ]; then
        setup_die "Missing, and not installed because IDEM_NO_INSTALL is set: ${missing//$'\n'/ }"
    fi
    setup_say "Installing: ${missing//$'\n'/ }"
    # shellcheck disable=SC2086 # one word a package
    setup_apt_install $missing || setup_die "The packages could not be installed; see above."
}

# True when DIRECTORY was configured for this very tree, not for one that it was copied from.
setup_is_configured() {
    [ -e "$1/build.ninja" ] &&
        grep -qF "\"source\": \"$PWD\"" "$1/meson-info/meson-info.json" 2>/dev/null
}

# Configures DIRECTORY if need be, then builds everything in it.
#   setup_build DIRECTORY [MESON OPTION]...
setup_build() {
    local directory=$1
    shift
    if ! setup_is_configured "$directory"; then
        setup_say "Configuring $directory"
        if [ -e "$directory/meson-info" ]; then
            find "$directory" -mindepth 1 -maxdepth 1 ! -name demo-state -exec rm -rf {} +
        fi
        mkdir -p "$directory"
        if ! meson setup "$directory" "$@" >"$directory/setup.log" 2>&1; then
            cat "$directory/setup.log" >&2
            setup_die "Meson could not configure $directory; see above."
        fi
    fi
    ninja -C "$directory" --quiet || setup_die "The build in $directory failed; see above."
}
