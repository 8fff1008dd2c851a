package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// AddressAnnotation is the loopback address at which the processes of a pod listen. The API server reaches the pod
// there: the pod's own address, which Services use, belongs to no network.
const AddressAnnotation = "sandbox.runlevel.dev/address"

// An egress opens the connections that the API server needs to webhooks, aggregated APIs, kubelets and pods. The API
// server itself would look for the addresses of Services on the networks of this machine, where other hosts may have
// them. An egress connects to the loopback, and to the network of real nodes.
type egress struct {
	client kubernetes.Interface
	nodes  netip.Prefix // network of real nodes
}

// egressConfiguration returns the configuration with which the API server uses the egress at a port.
func egressConfiguration(h *stateFolder, port int) (string, error) {
	connection := map[string]any{
		"proxyProtocol": "HTTPConnect",
		"transport": map[string]any{"tcp": map[string]any{
			"url": loopbackURL(port),
			"tlsConfig": map[string]any{
				"caBundle": h.path("pki", "ca.crt"), "clientCert": h.path("pki", "kubelet-client.crt"),
				"clientKey": h.path("pki", "kubelet-client.key"),
			},
		}},
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []any{ // controlplane is for webhooks by URL, cluster for all others
			map[string]any{"name": "cluster", "connection": connection},
			map[string]any{"name": "controlplane", "connection": connection},
		},
	})
	return string(text), err
}

// dial connects to a destination of the API server.
func (e *egress) dial(ctx context.Context, destination string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(destination)
	if err != nil {
		return nil, err
	}
	if host, port, err = e.locate(ctx, host, port); err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
}

// locate returns the address to connect to for a host: the host itself, or the pod behind the address of a Service or a
// pod.
func (e *egress) locate(ctx context.Context, host, port string) (foundHost, foundPort string, _ error) {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "localhost" || ip.IsLoopback() || e.nodes.Contains(ip):
		return host, port, nil
	case err != nil:
		return "", "", errors.New("the sandbox reaches this machine's loopback only")
	}
	hasAddress := metav1.ListOptions{FieldSelector: "spec.clusterIP=" + host}
	services, err := e.client.CoreV1().Services("").List(ctx, hasAddress)
	if err != nil {
		return "", "", err
	}
	if len(services.Items) > 0 {
		if host, port, err = e.endpointOf(ctx, &services.Items[0], port); err != nil {
			return "", "", err
		}
	}
	host, err = e.listenAddress(ctx, host)
	return host, port, err
}

// endpointOf returns the address and port of a ready pod behind a port of a Service.
func (e *egress) endpointOf(ctx context.Context, service *corev1.Service,
	port string) (atHost, atPort string, _ error) {
	slices, err := e.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return "", "", err
	}
	for _, servicePort := range service.Spec.Ports {
		if strconv.Itoa(int(servicePort.Port)) != port {
			continue
		}
		for _, slice := range slices.Items {
			if host, number := readyEndpoint(slice, servicePort.Name); host != "" {
				return host, strconv.Itoa(int(number)), nil
			}
		}
	}
	return "", "", fmt.Errorf("no pod of Service %s/%s is ready for port %s", service.Namespace, service.Name, port)
}

// readyEndpoint returns the address and port of a ready endpoint, or "".
func readyEndpoint(slice discoveryv1.EndpointSlice, name string) (string, int32) {
	for _, port := range slice.Ports {
		if port.Port == nil || port.Name == nil || *port.Name != name {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if ready := endpoint.Conditions.Ready; (ready == nil || *ready) && len(endpoint.Addresses) > 0 {
				return endpoint.Addresses[0], *port.Port
			}
		}
	}
	return "", 0
}

// listenAddress returns the address at which the pod with an address can be reached: that address on real nodes, or an
// address on the loopback.
func (e *egress) listenAddress(ctx context.Context, address string) (string, error) {
	if ip, err := netip.ParseAddr(address); err == nil && e.nodes.Contains(ip) {
		return address, nil
	}
	pods, err := e.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=" + address})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if ip, err := netip.ParseAddr(pod.Annotations[AddressAnnotation]); err == nil && ip.IsLoopback() {
			return ip.String(), nil
		}
	}
	if len(pods.Items) > 0 {
		return "", fmt.Errorf("pod %s/%s is simulated", pods.Items[0].Namespace, pods.Items[0].Name)
	}
	return "", errors.New("no pod of the sandbox has this address")
}
