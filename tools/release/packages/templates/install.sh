#!/bin/sh
# Installs the runlevel command with its completions and man pages. Every file comes from an archive whose checksum is
# signed with the key below. Nothing runs before the last line was read, so an incomplete download does nothing.
set -eu

usage() {
	cat <<'END'
Install the runlevel command, its completions and its man pages.

Usage: sh install.sh [--version VERSION] [--prefix FOLDER]
       curl -fsSL {{.Downloads}}/install.sh | sh -s -- --prefix FOLDER

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

download() { # FILE
	if has curl; then
		curl -fsSL --retry 3 -o "$work/$1" "$base/$version/$1"
	elif has wget; then
		wget -q -O "$work/$1" "$base/$version/$1"
	else
		fail "install curl or wget first"
	fi || fail "could not download $base/$version/$1: does version $version exist for $system?"
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

# place installs a file by renaming, so that a running command and a full disk leave a complete file.
place() { # MODE FILE FOLDER NAME
	new=$prefix/$3/.$4.$$
	if ! { mkdir -p "$prefix/$3" && cp "$work/files/$2" "$new" && chmod "$1" "$new" &&
		mv -f "$new" "$prefix/$3/$4"; }; then
		rm -f "$new"
		fail "could not write $prefix/$3/$4"
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
		--version) version=${2:?--version needs a version} ;;
		--prefix) prefix=${2:?--prefix needs a folder} ;;
		*) fail "unknown argument $1: --help lists the known ones" ;;
		esac
		shift 2
	done
	version=v${version#v}
	case $prefix in
	/*) ;;
	"") if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?set --prefix}/.local; fi ;;
	*) prefix=$PWD/$prefix ;;
	esac
	find_system
	if ! { mkdir -p "$prefix/bin" 2>/dev/null && [ -w "$prefix/bin" ]; }; then
		fail "cannot write to $prefix/bin: choose another folder with --prefix, or run this as root"
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM

	archive=runlevel_${version}_$system.tar.gz
	download checksums.txt
	verify_signature
	download "$archive"
	verify_checksum "$archive"
	mkdir "$work/files"
	tar -xzf "$work/$archive" -C "$work/files" || fail "could not unpack $archive"

	place 644 completions/runlevel.bash share/bash-completion/completions runlevel
	place 644 completions/_runlevel share/zsh/site-functions _runlevel
	place 644 completions/runlevel.fish share/fish/vendor_completions.d runlevel.fish
	for page in "$work"/files/man/man1/*.1; do
		place 644 "man/man1/${page##*/}" share/man/man1 "${page##*/}"
	done
	place 755 runlevel bin runlevel
	ln -sf runlevel "$prefix/bin/kubectl-runlevel"
	echo "installed runlevel $version in $prefix"
	found=$(command -v runlevel || true)
	[ "$found" = "$prefix/bin/runlevel" ] || cat <<END
The shell finds ${found:-no runlevel}, not $prefix/bin/runlevel. If it is systemd's /sbin/runlevel, put the folder first:
  export PATH="$prefix/bin:\$PATH"
END
}

{
	main "$@"
}
