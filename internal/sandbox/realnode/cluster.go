package realnode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
	"github.com/runlevel/runlevel/internal/sandbox/credentials"
	"github.com/runlevel/runlevel/internal/sandbox/realnode/clusterdns"
	"github.com/runlevel/runlevel/internal/sandbox/realnode/registries"
	"github.com/runlevel/runlevel/internal/sandbox/relay"
)

// Options configure the nodes of a sandbox.
type Options struct {
	Folder   string // parent folder of all files of the nodes
	Count    int
	Images   []string // images to import: see CheckImage
	Offline  bool     // the nodes pull no image from beyond this machine
	Programs Programs
}

// A Cluster contains the nodes of a sandbox, and the servers of this process on their network. A sandbox without real
// nodes has a nil Cluster, whose methods do nothing and return zero values.
type Cluster struct {
	options    Options
	set        nodeSet
	apiServer  string                      // address of the gate on the network
	components [][]*childprocess.Component // components of each node, in the order in which they start

	registry  *http.Server
	pullProxy *http.Server
	dns       *clusterdns.Server // nil until Start
}

// Connect creates the network of the nodes, and has the gate and the other servers listen there. One process at a time
// may run the function that it passes to lock.
func Connect(ctx context.Context, o Options, lock func(do func() error) error, gate *relay.Gate) (*Cluster, error) {
	c := &Cluster{options: o}
	err := lock(func() (err error) {
		c.set, err = claim(ctx, o.Folder, o.Count)
		return err
	})
	if err == nil {
		err = c.set.connect(ctx)
	}
	if err == nil {
		err = c.listen(gate)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("create the network of the nodes: %w", err)
	}
	return c, nil
}

// listen opens the ports of this process on the network of the nodes.
func (c *Cluster) listen(gate *relay.Gate) (err error) {
	gateway := c.set.gateway()
	if c.apiServer, err = gate.Listen(gateway.String()); err != nil {
		return err
	}
	if c.registry, err = registries.Start(gateway, filepath.Join(c.options.Folder, "registry")); err != nil {
		return err
	}
	c.set.registry = c.registry.Addr
	var proxy *url.URL
	if c.pullProxy, proxy, err = registries.StartPullProxy(gateway, c.options.Offline); err != nil {
		return err
	}
	c.set.pullProxy = proxy.String()
	return nil
}

// Close closes the servers, except for the gate.
func (c *Cluster) Close() {
	if c == nil {
		return
	}
	for _, server := range []*http.Server{c.registry, c.pullProxy} {
		if server != nil {
			_ = server.Close()
		}
	}
	if c.dns != nil {
		c.dns.Close()
	}
}

// Registry returns the address of the registry of images.
func (c *Cluster) Registry() string {
	if c == nil {
		return ""
	}
	return c.set.registry
}

// Network returns the network of the nodes and pods.
func (c *Cluster) Network() netip.Prefix {
	if c == nil {
		return netip.Prefix{}
	}
	return c.set.network()
}

// ServerNames returns the names of the API server on the network.
func (c *Cluster) ServerNames() []string {
	if c == nil {
		return nil
	}
	return []string{c.set.gateway().String()}
}

// Configure writes the files of the nodes, and returns their users. file has the certificate of the authority.
func (c *Cluster) Configure(ca *credentials.Authority, file string) ([]credentials.User, error) {
	if c == nil {
		return nil, nil
	}
	own, err := ca.KeyPair()
	if err != nil {
		return nil, err
	}
	server := credentials.Server{URL: "https://" + c.apiServer, CA: own.Certificate}
	proxy := credentials.NewUser("system:kube-proxy")
	users := []credentials.User{proxy}
	for _, n := range c.set.nodes() {
		kubelet := credentials.NewUser("system:node:"+n.name(), "system:nodes")
		users = append(users, kubelet)
		certificate, err := ca.Server(n.name(), n.address().String())
		if err == nil {
			err = n.configure(c.options.Programs, file)
		}
		if err == nil {
			err = errors.Join(
				certificate.Write(n.path(), "kubelet"),
				server.WriteKubeconfig(n.path("kubelet.kubeconfig"), kubelet),
				server.WriteKubeconfig(n.path("kube-proxy.kubeconfig"), proxy),
			)
		}
		if err != nil {
			return nil, fmt.Errorf("configure %s: %w", n.name(), err)
		}
	}
	return users, nil
}

// AddComponents adds the components of the nodes to a group.
func (c *Cluster) AddComponents(group *childprocess.Group) {
	if c == nil {
		return
	}
	for _, n := range c.set.nodes() {
		var components []*childprocess.Component
		for _, command := range n.commands(c.options.Programs) {
			components = append(components, group.Add(command))
		}
		c.components = append(c.components, components)
	}
}

// Start starts the nodes. The API server must be ready.
func (c *Cluster) Start(ctx context.Context, client kubernetes.Interface, group *childprocess.Group) error {
	if err := c.connectServices(ctx, client); err != nil {
		return fmt.Errorf("connect the API server and the nodes: %w", err)
	}
	starts, ctx := errgroup.WithContext(ctx)
	for i, n := range c.set.nodes() {
		starts.Go(func() error { return c.startNode(ctx, n, group, c.components[i]) })
	}
	return starts.Wait()
}

// startNode starts the container runtime of a node, and the other components once the runtime answers: a kubelet does
// not wait for its runtime.
func (c *Cluster) startNode(ctx context.Context, n node, group *childprocess.Group,
	components []*childprocess.Component) error {
	runtime := components[0]
	if err := group.Start(runtime); err != nil {
		return err
	}
	if err := n.awaitCRI(ctx, runtime); err != nil {
		return err
	}
	if err := n.importImages(ctx, c.options.Programs, c.options.Images); err != nil {
		return runtime.WithLog(err)
	}
	return group.Start(components[1:]...)
}

// connectServices creates the endpoints of two Services: that of the API server, which the API server can't create
// itself because it listens on the loopback only, and that of the cluster's DNS, which connectServices starts.
func (c *Cluster) connectServices(ctx context.Context, client kubernetes.Interface) error {
	gate, err := netip.ParseAddrPort(c.apiServer)
	if err != nil {
		return err
	}
	https := endpointPort("https", corev1.ProtocolTCP, int(gate.Port()))
	if err := c.createEndpoint(ctx, client, metav1.NamespaceDefault, "kubernetes", https); err != nil {
		return err
	}
	if c.dns, err = clusterdns.Serve(ctx, c.set.gateway(), client); err != nil {
		return err
	}
	const name = "kube-dns" // the usual one
	port := func(name string, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: 53, Protocol: protocol}
	}
	_, err = client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: dnsAddress,
			Ports:     []corev1.ServicePort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return c.createEndpoint(ctx, client, metav1.NamespaceSystem, name,
		endpointPort("dns", corev1.ProtocolUDP, c.dns.UDPPort),
		endpointPort("dns-tcp", corev1.ProtocolTCP, c.dns.TCPPort))
}

// createEndpoint makes this process the endpoint of a Service.
func (c *Cluster) createEndpoint(ctx context.Context, client kubernetes.Interface, namespace, service string,
	ports ...discoveryv1.EndpointPort,
) error {
	_, err := client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:   service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.set.gateway().String()}}},
		Ports:       ports,
	}, metav1.CreateOptions{})
	return err
}

func endpointPort(name string, protocol corev1.Protocol, port int) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: ptr.To(int32(port))}
}
