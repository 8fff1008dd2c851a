#!/bin/sh
# Updates one host: installs the kubelet of the Machine's version with ssh, and reboots. It is called again and again for one machine,
# so it looks first what is there. HOSTS is a file with a line "PROVIDER-ID ADDRESS" for each host; KEY is the key for ssh.
set -eu

case $HOOK in
CanUpdateMachineSet | CanUpdateMachine)
  # The request is on standard input. What jq leaves of the two sides without versions has to be the same.
  jq -e 'def rest: del(.. | .version?) | del(.. | .metadata?) | del(.. | .infrastructureRef?, .configRef?, .replicas?, .selector?);
    (.current | rest) == (.desired | rest)' >/dev/null && exit 0
  echo "only the version of a host can be changed in place"
  exit 75
  ;;
esac

address=$(awk -v id="$PROVIDER_ID" '$1 == id { print $2 }' "$HOSTS")
if [ -z "$address" ]; then
  echo "there is no host of $PROVIDER_ID in $HOSTS: add it, or delete the machine"
  exit 1
fi
host() { ssh -i "$KEY" -o BatchMode=yes -o ConnectTimeout=5 "root@$address" "$@" </dev/null; }
running=$(host kubelet --version) || {
  echo "15 $address does not answer yet"
  exit 75
}
if [ "${running#Kubernetes }" = "$VERSION" ]; then
  exit 0
fi
host "nohup flock -n /run/update.lock sh -c 'install-kubelet $VERSION && reboot' >/dev/null 2>&1 &"
echo "30 installs $VERSION on $address"
exit 75
