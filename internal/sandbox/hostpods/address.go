package hostpods

import (
	"hash/fnv"
	"net/netip"
	"runtime"

	"k8s.io/apimachinery/pkg/types"
)

// An address is that of a pod: three bytes, of which there is an address of loopback, and one that endpoints of
// a Service may have.
type address [3]byte

// newAddress returns an address that no other pod here has, nor likely any elsewhere on this machine.
func newAddress(uid types.UID, taken func(address) bool) address {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	for number := hash.Sum32(); ; number++ {
		a := address{byte(number >> 16), byte(number >> 8), byte(number)}
		if a[0] > 0 && a[2] > 0 && a[2] < 255 && !taken(a) {
			return a
		}
	}
}

// listen is where the pod's processes listen: an address of loopback that is the pod's own, where there are such.
func (a address) listen() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return netip.AddrFrom4([4]byte{127, a[0], a[1], a[2]}).String()
}

// reported is the address in the pod's status. The API server takes no endpoints on loopback.
func (a address) reported() string { return netip.AddrFrom4([4]byte{10, a[0], a[1], a[2]}).String() }
