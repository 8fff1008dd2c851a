package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/clusterdns"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// findNodePrograms returns the programs of real nodes, if the options ask for nodes.
func findNodePrograms(ctx context.Context, o Options) (realnode.Programs, error) {
	if o.RealNodes == 0 {
		return realnode.Programs{}, nil
	}
	programs, err := realnode.FindPrograms()
	if err != nil {
		return programs, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	found, err := binaries.Locate(ctx, binaries.NodeNames(), o.Progress)
	programs.Kubelet, programs.KubeProxy = found[binaries.Kubelet], found[binaries.KubeProxy]
	return programs, err
}

// A realNodes has the nodes of a sandbox that run containers. Nil is a sandbox without them.
type realNodes struct {
	set        realnode.NodeSet
	programs   realnode.Programs
	components []*component // of all nodes, which start once the API server is ready

	// On the network of the nodes:
	gate      *gate // to the API server
	registry  *http.Server
	pullProxy *http.Server
	dns       *clusterdns.Server // nil until the API server is ready
}

// connectNodes makes the network of the nodes, and opens the API server's port there.
func connectNodes(ctx context.Context, o Options, h *stateFolder, p ports,
	programs realnode.Programs) (*realNodes, error) {
	if o.RealNodes == 0 {
		return nil, nil
	}
	var set realnode.NodeSet
	err := withLock(filepath.Dir(h.dir), func() (err error) {
		set, err = realnode.Claim(ctx, h.nodes(), o.RealNodes)
		return err
	})
	if err == nil {
		err = set.Connect(ctx)
	}
	r := &realNodes{set: set, programs: programs}
	if err == nil {
		err = r.listen(o, h, p)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("make the network of the nodes: %w", err)
	}
	return r, nil
}

// listen opens the ports of this process on the network of the nodes.
func (r *realNodes) listen(o Options, h *stateFolder, p ports) (err error) {
	address := r.set.Gateway()
	if r.gate, err = newGate(address.String(), fmt.Sprintf("127.0.0.1:%d", p.apiServer)); err != nil {
		return err
	}
	if r.registry, err = startRegistry(address, filepath.Join(h.nodes(), "registry")); err != nil {
		return err
	}
	r.set.Registry = r.registry.Addr
	var proxy *url.URL
	if r.pullProxy, proxy, err = startPullProxy(address, o.Offline); err != nil {
		return err
	}
	r.set.PullProxy = proxy.String()
	return nil
}

// close closes the ports.
func (r *realNodes) close() {
	if r == nil {
		return
	}
	if r.gate != nil {
		r.gate.close()
	}
	for _, server := range []*http.Server{r.registry, r.pullProxy} {
		if server != nil {
			_ = server.Close()
		}
	}
	if r.dns != nil {
		r.dns.Close()
	}
}

// registryAddress returns the address of the registry of images; "" without real nodes.
func (r *realNodes) registryAddress() string {
	if r == nil {
		return ""
	}
	return r.registry.Addr
}

// configure writes the files of the nodes, and returns their users.
func (r *realNodes) configure(h *stateFolder, ca *authority) ([]user, error) {
	if r == nil {
		return nil, nil
	}
	own, err := ca.pair()
	if err != nil {
		return nil, err
	}
	proxy := newUser("system:kube-proxy")
	users := []user{proxy}
	server := "https://" + r.gate.address()
	err = r.set.Configure(r.programs, func(n realnode.KubeletNode) (realnode.Credentials, error) {
		kubelet := newUser("system:node:"+n.Name(), "system:nodes")
		users = append(users, kubelet)
		served, err := ca.server(n.Name(), n.Address().String())
		if err == nil {
			err = served.write(h.pki(), n.Name())
		}
		if err != nil {
			return realnode.Credentials{}, err
		}
		granted := realnode.Credentials{
			Authority:   h.path("pki", "ca.crt"),
			Certificate: filepath.Join(h.pki(), n.Name()+".crt"), Key: filepath.Join(h.pki(), n.Name()+".key"),
		}
		if granted.Kubelet, err = kubeconfigText(server, own.cert, kubelet); err != nil {
			return granted, err
		}
		granted.KubeProxy, err = kubeconfigText(server, own.cert, proxy)
		return granted, err
	})
	return users, err
}

// network returns the network of the nodes; none without them.
func (r *realNodes) network() netip.Prefix {
	if r == nil {
		return netip.Prefix{}
	}
	return r.set.Network()
}

// serverNames returns the names of the API server for pods.
func (r *realNodes) serverNames() []string {
	if r == nil {
		return nil
	}
	return []string{r.set.Gateway().String(), serviceAddress}
}

// add makes the components of the nodes.
func (r *realNodes) add(newComponent func(name, program string, args []string) *component) {
	if r == nil {
		return
	}
	for _, n := range r.set.Nodes() {
		for _, command := range n.Commands(r.programs) {
			c := newComponent(command.Name, command.Program, command.Args)
			c.env = command.Env
			r.components = append(r.components, c)
		}
	}
}

// allComponents returns the components of the control plane and of the nodes.
func (s *Sandbox) allComponents() []*component {
	if s.nodes == nil {
		return s.components
	}
	return slices.Concat(s.components, s.nodes.components)
}

// gates returns the ways of components to the API server.
func (s *Sandbox) gates() []*gate {
	if s.nodes == nil {
		return []*gate{s.gate}
	}
	return []*gate{s.gate, s.nodes.gate}
}

// startNodes starts the nodes.
func (s *Sandbox) startNodes(ctx context.Context, client kubernetes.Interface, images []string) error {
	if err := s.nodes.connectServices(ctx, client); err != nil {
		return fmt.Errorf("connect the API server and the nodes: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, n := range s.nodes.set.Nodes() {
		perNode := len(s.nodes.components) / s.nodes.set.Count
		components := s.nodes.components[i*perNode : (i+1)*perNode]
		group.Go(func() error { return s.startNode(ctx, n, components, images) })
	}
	return group.Wait()
}

// startNode starts the container runtime of a node, and the others once it answers: a kubelet does not wait for it.
func (s *Sandbox) startNode(ctx context.Context, n realnode.KubeletNode, components []*component,
	images []string) error {
	runtime := components[0]
	if err := s.restart(runtime); err != nil {
		return err
	}
	switch err := n.AwaitCRI(ctx); {
	case errors.Is(err, realnode.ErrNoCRI):
		return runtime.withCRIError(fmt.Errorf("start the container runtime of %s: %w", n.Name(), err))
	case err != nil:
		return runtime.withLog(fmt.Errorf("the container runtime of %s does not answer: %w", n.Name(), err))
	}
	if err := n.ImportImages(ctx, s.nodes.programs, images); err != nil {
		return runtime.withLog(err)
	}
	for _, c := range components[1:] {
		if err := s.restart(c); err != nil {
			return err
		}
	}
	return s.publish()
}

// connectServices makes the endpoint of the Service of the API server, which the API server itself can't make: it
// listens on the loopback only. It allows the API server to call kubelets, and starts DNS.
func (r *realNodes) connectServices(ctx context.Context, client kubernetes.Interface) error {
	if err := bind(ctx, client, "system:kubelet-api-admin", kubeletClient); err != nil {
		return err
	}
	gate, err := netip.ParseAddrPort(r.gate.address())
	if err != nil {
		return err
	}
	if err := r.createEndpoint(ctx, client, metav1.NamespaceDefault, "kubernetes",
		endpointPort("https", corev1.ProtocolTCP, int(gate.Port()))); err != nil {
		return err
	}
	if r.dns, err = clusterdns.Serve(ctx, r.set.Gateway(), client); err != nil {
		return err
	}
	const name = "kube-dns" // the usual one
	port := func(name string, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: 53, Protocol: protocol}
	}
	_, err = client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: realnode.DNSAddress,
			Ports:     []corev1.ServicePort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return r.createEndpoint(ctx, client, metav1.NamespaceSystem, name,
		endpointPort("dns", corev1.ProtocolUDP, r.dns.UDPPort),
		endpointPort("dns-tcp", corev1.ProtocolTCP, r.dns.TCPPort))
}

// createEndpoint makes this process the endpoint of a Service.
func (r *realNodes) createEndpoint(ctx context.Context, client kubernetes.Interface, namespace, service string,
	ports ...discoveryv1.EndpointPort) error {
	_, err := client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{r.set.Gateway().String()}}},
		Ports:       ports,
	}, metav1.CreateOptions{})
	return err
}

func endpointPort(name string, protocol corev1.Protocol, port int) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: ptr.To(int32(port))}
}
