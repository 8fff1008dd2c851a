#!/bin/sh
# Installs the runlevel command with its completions and man pages. Every file comes from an archive whose checksum is
# signed with the key below. Nothing runs before the last line was read, so an incomplete download does nothing.
set -eu

usage() {
	cat <<'END'
Install the runlevel command, its completions and its man pages.

Usage: sh install.sh [--version VERSION] [--prefix FOLDER]
       curl --proto '=https' -fsSL {{.Downloads}}/install.sh | sh -s -- --prefix FOLDER

  --version VERSION  version to install (default {{.Version}}); RUNLEVEL_VERSION sets it, too
  --prefix FOLDER    install to FOLDER/bin and FOLDER/share (default ~/.local, or /usr/local for root);
                     RUNLEVEL_PREFIX sets it, too

Variables:
  RUNLEVEL_BASE_URL          mirror of {{.Base}},
                             with a folder for each version
  RUNLEVEL_SKIP_SIGNATURE=1  do not verify the signature, where neither openssl nor cosign can be installed
END
}

print_key() {
	cat <<'END'
{{text .Key}}
END
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

has() {
	command -v "$1" >/dev/null 2>&1
}

# download gives up if a server or proxy stops answering. An HTTPS server can't redirect to plain HTTP.
download() { # FILE
	url=$base/$version/$1
	if has curl; then
		curl -fsSL --proto "=https,${base%%:*}" --connect-timeout 20 --speed-limit 1000 --speed-time 30 --retry 3 \
			-o "$work/$1" "$url"
	elif has wget; then
		wget -nv -T 30 -t 3 -O "$work/$1" "$url"
	else
		fail "install curl or wget first"
	fi || case $? in
	22 | 8) fail "could not download $url: does version $version exist for $system?" ;; # a status of HTTP
	*) fail "could not download $url: see the error above" ;;
	esac
}

verify_signature() {
	if [ "${RUNLEVEL_SKIP_SIGNATURE:-}" = 1 ]; then
		echo "install.sh: warning: the signature is not verified, because RUNLEVEL_SKIP_SIGNATURE=1 is set" >&2
		return
	fi
	download checksums.txt.sig
	print_key >"$work/key.pem"
	if has openssl; then
		openssl base64 -d -A -in "$work/checksums.txt.sig" -out "$work/signature" &&
			openssl dgst -sha256 -verify "$work/key.pem" -signature "$work/signature" "$work/checksums.txt" >/dev/null 2>&1
	elif has cosign; then
		cosign verify-blob --key "$work/key.pem" --signature "$work/checksums.txt.sig" --insecure-ignore-tlog=true \
			"$work/checksums.txt" >/dev/null 2>&1
	else
		fail "install openssl or cosign to verify the signature, or set RUNLEVEL_SKIP_SIGNATURE=1 to install without"
	fi || fail "wrong signature: $base/$version/checksums.txt.sig does not sign checksums.txt with Runlevel's key; \
nothing was installed"
}

verify_checksum() { # FILE
	want=$(awk -v file="$1" '$2 == file { print $1 }' "$work/checksums.txt")
	[ -n "$want" ] || fail "checksums.txt of $version does not list $1: there is no download for $system"
	if has sha256sum; then
		got=$(sha256sum <"$work/$1")
	elif has shasum; then
		got=$(shasum -a 256 <"$work/$1")
	else
		fail "install sha256sum or shasum first"
	fi
	[ "${got%% *}" = "$want" ] || fail "wrong checksum: $1 has SHA-256 ${got%% *}, checksums.txt has $want; \
nothing was installed"
}

# place installs a file or link by renaming, so that a running command and a full disk leave a complete file.
place() { # FILE FOLDER NAME
	[ ! -d "$prefix/$2/$3" ] || fail "$prefix/$2/$3 is a folder: remove it"
	new=$prefix/$2/.$3.$$
	if ! { cp -RP "$work/files/$1" "$new" && mv -f "$new" "$prefix/$2/$3"; }; then
		fail "could not write $prefix/$2/$3"
	fi
}

find_system() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "no archive for $(uname -s): on Windows, use winget, scoop, or the zip file in $base/$version" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) system=${system}_amd64 ;;
	aarch64 | arm64) system=${system}_arm64 ;;
	*) fail "no archive for $(uname -m): build runlevel from source" ;;
	esac
}

main() {
	umask 022 # root's may hide the files from others
	version=${RUNLEVEL_VERSION:-{{.Version}}}
	prefix=${RUNLEVEL_PREFIX:-}
	base=${RUNLEVEL_BASE_URL:-{{.Base}}}
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit ;;
		--version=* | --prefix=*) flag=${1%%=*} value=${1#*=} ;;
		--version | --prefix) flag=$1 value=${2:-} && shift ;;
		*) fail "unknown argument $1: --help lists the known ones" ;;
		esac
		[ -n "$value" ] || fail "$flag needs a value"
		if [ "$flag" = --version ]; then version=$value; else prefix=$value; fi
		shift
	done
	case v${version#v} in
	*[!0-9A-Za-z.+-]* | v | v[!0-9]*) fail "$version is not a version: use one such as {{.Version}}" ;;
	esac
	version=v${version#v}
	case $prefix in
	/*) ;;
	"") if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?set --prefix}/.local; fi ;;
	*) prefix=$PWD/$prefix ;;
	esac
	prefix=${prefix%/}
	find_system
	for folder in bin share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d \
		share/man/man1; do
		if ! { mkdir -p "$prefix/$folder" 2>/dev/null && [ -w "$prefix/$folder" ]; }; then
			fail "cannot write to $prefix/$folder: choose another folder with --prefix, or run this as root"
		fi
	done
	work=$(mktemp -d)
	new=$work
	trap 'rm -rf "$work" "$new"' EXIT
	trap 'exit 1' HUP INT TERM

	archive=runlevel_${version}_$system.tar.gz
	download checksums.txt
	verify_signature
	download "$archive"
	verify_checksum "$archive"
	mkdir "$work/files"
	tar -xzf "$work/$archive" -C "$work/files" || fail "could not unpack $archive"

	place runlevel bin runlevel
	ln -s runlevel "$work/files/kubectl-runlevel"
	place kubectl-runlevel bin kubectl-runlevel
	place completions/runlevel.bash share/bash-completion/completions runlevel
	place completions/_runlevel share/zsh/site-functions _runlevel
	place completions/runlevel.fish share/fish/vendor_completions.d runlevel.fish
	for page in "$work"/files/man/man1/*.1; do
		place "man/man1/${page##*/}" share/man/man1 "${page##*/}"
	done
	echo "installed runlevel $version in $prefix"
	check_path
}

# check_path warns if the shell finds another program of that name, such as systemd's.
check_path() {
	found=$(command -v runlevel || true)
	# shellcheck disable=SC3013 # dash, bash and busybox have -ef, and so has POSIX since 2024
	if [ -z "$found" ]; then
		echo "$prefix/bin is not in PATH. Add it:"
	elif [ "$found" -ef "$prefix/bin/runlevel" ]; then
		return
	else
		echo "PATH has another runlevel first: $found. Put this folder before it:"
	fi
	echo "  export PATH=\"$prefix/bin:\$PATH\""
}

{
	main "$@"
}
