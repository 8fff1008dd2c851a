package hostpods

import (
	"hash/fnv"
	"net/netip"
	"runtime"

	"k8s.io/apimachinery/pkg/types"
)

// An address contains the last three bytes of a pod's two addresses: one on the loopback, and one that endpoints of a
// Service may have.
type address [3]byte

// newAddress returns an address for which isTaken returns false. Pods of other sandboxes are unlikely to have the same
// address.
func newAddress(uid types.UID, isTaken func(address) bool) address {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	for number := hash.Sum32(); ; number++ {
		a := address{byte(number >> 16), byte(number >> 8), byte(number)}
		if a[0] > 0 && a[2] > 0 && a[2] < 255 && !isTaken(a) {
			return a
		}
	}
}

// listenIP returns the address at which the pod's processes listen. On Linux, each pod has its own address on the
// loopback.
func (a address) listenIP() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return netip.AddrFrom4([4]byte{127, a[0], a[1], a[2]}).String()
}

// statusIP returns the address in the pod's status. The API server accepts no endpoints on the loopback.
func (a address) statusIP() string { return netip.AddrFrom4([4]byte{10, a[0], a[1], a[2]}).String() }
