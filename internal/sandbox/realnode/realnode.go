// Package realnode runs nodes on this machine that run containers: a network namespace, a container runtime, a kubelet
// and a kube-proxy for each. All code that only such nodes need is here and in the packages below.
//
// Package sandbox starts the control plane. It calls Connect before the API server starts, Cluster.Start when the API
// server is ready, and Remove at the end. Remove needs only the folder, so that it also removes the nodes of a sandbox
// whose process was killed.
//
// The names of links, namespaces and control groups contain the number of the set. Set N has the network 10.N.0.0/16:
// node I has the address 10.N.255.I+1 and the pods 10.N.I.0/24; this machine is 10.N.255.254 on the bridge that joins
// the nodes. The network has no way out: images are imported, or pulled through a proxy of this machine.
package realnode

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
)

// The numbers of sets: the second byte of their networks.
const (
	firstNumber = 200
	lastNumber  = 249
)

// MaxNodes is the maximum number of nodes of a set.
const MaxNodes = 32

// A nodeSet contains the nodes of one sandbox.
type nodeSet struct {
	folder string // parent folder of all files of the nodes
	number int
	count  int

	registry  string // the address of a registry without TLS
	pullProxy string // the URL of the proxy to other registries, with credentials
}

// dnsAddress is the address of the Service of the cluster's DNS.
const dnsAddress = "10.96.0.10"

// gateway returns the address of this machine on the network of the nodes.
func (s nodeSet) gateway() netip.Addr { return s.address(255, 254) }

// network returns the prefix of all addresses of nodes and pods.
func (s nodeSet) network() netip.Prefix { return netip.PrefixFrom(s.address(0, 0), 16) }

func (s nodeSet) address(third, fourth byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(s.number), third, fourth})
}

// bridge returns the name of the link that connects the nodes. A set with this bridge owns the number.
func (s nodeSet) bridge() string { return "runlevel" + strconv.Itoa(s.number) }

// cgroup returns the name of the control group of all containers, below each hierarchy.
func (s nodeSet) cgroup() string { return s.bridge() }

// nodes returns the nodes.
func (s nodeSet) nodes() []node {
	nodes := make([]node, s.count)
	for i := range nodes {
		nodes[i] = node{set: s, index: i}
	}
	return nodes
}

// A node is one node of a set.
type node struct {
	set   nodeSet
	index int
}

// name returns the name of the Node object.
func (n node) name() string { return fmt.Sprintf("node-%d", n.index) }

// address returns the address of the node.
func (n node) address() netip.Addr { return n.set.address(255, byte(n.index+1)) }

func (n node) pods() netip.Prefix {
	return netip.PrefixFrom(n.set.address(byte(n.index), 0), 24)
}

// namespace returns the name of the network namespace.
func (n node) namespace() string { return fmt.Sprintf("%s-%d", n.set.bridge(), n.index) }

// link returns the name of this machine's end of the link to the node.
func (n node) link() string { return fmt.Sprintf("rl%d-%d", n.set.number, n.index) }

// cgroup returns the control group of the node's containers.
func (n node) cgroup() string { return filepath.Join(n.set.cgroup(), n.name()) }

func (n node) path(elements ...string) string {
	return filepath.Join(append([]string{n.set.folder, n.name()}, elements...)...)
}

// socket returns the socket of the container runtime.
func (n node) socket() string { return n.path("containerd.sock") }

// commands returns the components of a node in the order in which they start.
func (n node) commands(programs Programs) []childprocess.Command {
	inside := func(name, program string, args ...string) childprocess.Command {
		// Not "ip netns exec": that mounts /sys again, without its control groups.
		return childprocess.Command{
			Name: fmt.Sprintf("%s-%d", name, n.index), Program: programs.Nsenter,
			Args: append([]string{"--net=" + filepath.Join(namespaces, n.namespace()), program}, args...),
		}
	}
	runtime := inside("containerd", programs.Containerd, "--config", n.path("containerd.toml"))
	runtime.Env = n.set.proxyEnvironment()
	return []childprocess.Command{
		runtime,
		inside("kubelet", programs.Kubelet,
			"--config", n.path("kubelet.yaml"), "--kubeconfig", n.path("kubelet.kubeconfig"),
			"--root-dir", n.path("kubelet"), "--hostname-override", n.name(), "--node-ip", n.address().String()),
		inside("kube-proxy", programs.KubeProxy, "--config", n.path("kube-proxy.yaml")),
	}
}

// proxyEnvironment returns the variables with which the container runtime pulls images through the proxy of the
// sandbox. A proxy of this machine may be out of reach for the nodes.
func (s nodeSet) proxyEnvironment() []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		env = append(env, name+"="+s.pullProxy, strings.ToLower(name)+"="+s.pullProxy)
	}
	return append(env, "NO_PROXY="+s.network().String(), "no_proxy="+s.network().String())
}
