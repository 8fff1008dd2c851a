// Package realnode prepares nodes on this machine that run containers: a network namespace, a container runtime, a
// kubelet and a kube-proxy for each.
//
// It starts no process that lasts. Package sandbox calls Claim, Connect and Configure, starts the Commands of each
// node, and calls Remove at the end. Remove needs nothing but the folder, so that it also removes what is left of a
// sandbox whose process was killed.
//
// Everything has the number of the set in its name. Set N has the network 10.N.0.0/16: node I has the address
// 10.N.255.I+1 and the pods 10.N.I.0/24; this machine is 10.N.255.254 on the bridge that joins the nodes. The network
// has no way out: images are imported, or pulled through a proxy of this machine.
package realnode

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// The numbers of sets: the second byte of their networks.
const (
	firstNumber = 200
	lastNumber  = 249
)

// MaxNodes is how many nodes a set may have.
const MaxNodes = 32

// A NodeSet has the nodes of one sandbox.
type NodeSet struct {
	Folder string // for all files of the nodes
	Number int
	Count  int

	Registry  string // the address of a registry without TLS
	PullProxy string // the URL of the proxy to other registries, with credentials
}

// DNSAddress is the address of the Service of the cluster's DNS.
const DNSAddress = "10.96.0.10"

// Gateway returns the address of this machine on the network of the nodes.
func (s NodeSet) Gateway() netip.Addr { return s.address(255, 254) }

// Network returns the prefix of all addresses of nodes and pods.
func (s NodeSet) Network() netip.Prefix { return netip.PrefixFrom(s.address(0, 0), 16) }

func (s NodeSet) address(third, fourth byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(s.Number), third, fourth})
}

// bridge is the name of the link that joins the nodes. It is also the claim to the number.
func (s NodeSet) bridge() string { return "runlevel" + strconv.Itoa(s.Number) }

// cgroup is the name of the control group of all containers, below each hierarchy.
func (s NodeSet) cgroup() string { return s.bridge() }

// Nodes returns the nodes.
func (s NodeSet) Nodes() []KubeletNode {
	nodes := make([]KubeletNode, s.Count)
	for i := range nodes {
		nodes[i] = KubeletNode{set: s, index: i}
	}
	return nodes
}

// A KubeletNode is one node of a set.
type KubeletNode struct {
	set   NodeSet
	index int
}

// Name returns the name of the Node object.
func (n KubeletNode) Name() string { return fmt.Sprintf("node-%d", n.index) }

// Address returns the address of the node.
func (n KubeletNode) Address() netip.Addr { return n.set.address(255, byte(n.index+1)) }

func (n KubeletNode) pods() netip.Prefix {
	return netip.PrefixFrom(n.set.address(byte(n.index), 0), 24)
}

// namespace is the name of the network namespace.
func (n KubeletNode) namespace() string { return fmt.Sprintf("%s-%d", n.set.bridge(), n.index) }

// link is the name of this machine's end of the link to the node.
func (n KubeletNode) link() string { return fmt.Sprintf("rl%d-%d", n.set.Number, n.index) }

// cgroup is the control group of the node's containers.
func (n KubeletNode) cgroup() string { return filepath.Join(n.set.cgroup(), n.Name()) }

func (n KubeletNode) path(elements ...string) string {
	return filepath.Join(append([]string{n.set.Folder, n.Name()}, elements...)...)
}

// Socket returns the socket of the container runtime.
func (n KubeletNode) Socket() string { return n.path("containerd.sock") }

// A NodeCommand is the command line of a process of a node.
type NodeCommand struct {
	Name    string // of the component, such as kubelet-0
	Program string
	Args    []string
	Env     []string
}

// Commands returns the processes of a node in the order in which they start.
func (n KubeletNode) Commands(programs Programs) []NodeCommand {
	inside := func(name, program string, args ...string) NodeCommand {
		// Not "ip netns exec": that mounts /sys again, without its control groups.
		return NodeCommand{
			Name: fmt.Sprintf("%s-%d", name, n.index), Program: programs.Nsenter,
			Args: append([]string{"--net=" + filepath.Join(namespaces, n.namespace()), program}, args...),
		}
	}
	runtime := inside("containerd", programs.Containerd, "--config", n.path("containerd.toml"))
	runtime.Env = n.set.proxyEnvironment()
	return []NodeCommand{
		runtime,
		inside("kubelet", programs.Kubelet, "--config", n.path("kubelet.yaml"), "--kubeconfig",
			n.path("kubelet.kubeconfig"),
			"--root-dir", n.path("kubelet"), "--hostname-override", n.Name(), "--node-ip", n.Address().String()),
		inside("kube-proxy", programs.KubeProxy, "--config", n.path("kube-proxy.yaml")),
	}
}

// proxyEnvironment returns the variables that have the container runtime pull images through the proxy, and not through
// one of this machine, which the nodes may not reach.
func (s NodeSet) proxyEnvironment() []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		env = append(env, name+"="+s.PullProxy, strings.ToLower(name)+"="+s.PullProxy)
	}
	return append(env, "NO_PROXY="+s.Network().String(), "no_proxy="+s.Network().String())
}
