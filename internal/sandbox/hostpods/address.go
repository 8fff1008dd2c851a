package hostpods

import (
	"hash/fnv"
	"net/netip"
	"runtime"

	"k8s.io/apimachinery/pkg/types"
)

// An address is the address of a pod: three bytes, for an address on the loopback and for one that endpoints of a
// Service may have.
type address [3]byte

// newAddress returns an address that isTaken does not report, and that pods of other sandboxes are unlikely to have.
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

// listen returns the address at which the pod's processes listen. On Linux, each pod has its own on the loopback.
func (a address) listen() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return netip.AddrFrom4([4]byte{127, a[0], a[1], a[2]}).String()
}

// reported returns the address in the pod's status. The API server accepts no endpoints on the loopback.
func (a address) reported() string { return netip.AddrFrom4([4]byte{10, a[0], a[1], a[2]}).String() }
