#!/bin/sh
# provide.sh NAMESPACE starts and ends the hosts of a rack for the ExternalMachines of a namespace, with kubectl and ipmitool.
#
# Each run is one pass, and can be repeated: run it every minute, one at a time. A run that was killed is made up for by
# the next one. It exits with 1 if a host could not be switched, or if there are more machines than hosts.
#
#   HOSTS    a file with a line for each host: NAME, address of its BMC, internal IP (default: hosts.txt)
#   POWER    a command that gets "on" or "off", and the address of a BMC (default: ipmitool, as below)
#   KUBECTL  kubectl, or oc
#
# A host that is switched on has to boot into a fresh system, whose kubelet joins the cluster with
# --provider-id=metal://NAME. How it gets that system (PXE, an image) is not shown here.
set -eu
namespace=${1:?"usage: provide.sh NAMESPACE"}
HOSTS=${HOSTS:-hosts.txt} KUBECTL=${KUBECTL:-kubectl} failed=0

power() {
	if [ -n "${POWER:-}" ]; then
		"$POWER" "$1" "$2"
	else
		ipmitool -I lanplus -H "$2" -U "$IPMI_USER" -E chassis power "$1"
	fi </dev/null
}

# say prints what was done, or what could not be.
say() { echo "$machine: $*"; }

patch() { "$KUBECTL" patch externalmachines.infrastructure.runlevel.dev -n "$namespace" "$machine" --type=merge -p "$1" </dev/null >/dev/null; }

# machines prints NAME|DELETED|HOST|PROVIDERID|TERMINATED of each ExternalMachine.
machines() {
	"$KUBECTL" get externalmachines.infrastructure.runlevel.dev -n "$namespace" -o 'jsonpath={range .items[*]}{.metadata.name}|{.metadata.deletionTimestamp}|{.metadata.annotations.example\.com/host}|{.spec.providerID}|{.spec.terminated}{"\n"}{end}'
}

# field prints a field of the line of the machine's host.
field() { awk -v host="$host" -v field="$1" '$1 == host { print $field }' "$HOSTS"; }

# choose gives the machine the first host that no other one has. It is noted before anything is switched on, so that a run
# that is killed leaves no host on that nothing knows of.
choose() {
	taken=$(machines) || return 1
	while read -r host _; do
		case $host in '' | \#*) continue ;; esac
		case $taken in *"|$host|"*) continue ;; esac
		patch "{\"metadata\":{\"annotations\":{\"example.com/host\":\"$host\"}}}"
		return
	done <"$HOSTS"
	say "there is no host left"
	return 1
}

start() {
	[ -n "$host" ] || choose || return 1
	power on "$(field 2)" || { say "$host could not be switched on"; return 1; }
	patch "{\"spec\":{\"providerID\":\"metal://$host\",\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"$(field 3)\"}]}}" || return 1
	say "runs on $host"
}

# end switches the host of the machine off, if it has one. The host is free when the object is gone, and not before.
end() {
	if [ -n "$host" ]; then
		power off "$(field 2)" || { say "$host could not be switched off"; return 1; }
	fi
	patch '{"spec":{"terminated":true}}' || return 1
	say "ended"
}

list=$(machines)
while IFS='|' read -r machine deleted host id terminated; do
	if [ -n "$machine" ] && [ -z "$deleted" ] && [ -z "$id" ]; then
		start || failed=1
	elif [ -n "$deleted" ] && [ "$terminated" != true ]; then
		end || failed=1
	fi
done <<END
$list
END
exit "$failed"
