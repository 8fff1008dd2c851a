package clusterdns_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/realnode/clusterdns"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var cluster = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// TestServiceNames resolves names of each kind of Service, over UDP and TCP.
func TestServiceNames(t *testing.T) {
	server, err := clusterdns.Serve(t.Context(), netip.MustParseAddr("127.0.0.1"), cluster.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	namespace := cluster.Namespace(t)
	address := createServices(t, namespace)
	for name, test := range map[string]struct {
		kind uint16
		want string
	}{
		"web":                 {dns.TypeA, address},
		"WEB":                 {dns.TypeA, address},
		"web ":                {dns.TypeAAAA, ""},
		"_http._tcp.web":      {dns.TypeSRV, "80 web." + namespace + ".svc.cluster.local."},
		"_https._tcp.web":     {dns.TypeSRV, "NXDOMAIN"},
		"first.web":           {dns.TypeA, "NXDOMAIN"},
		"pods":                {dns.TypeA, "10.0.0.1 10.0.0.2"},
		"first.pods":          {dns.TypeA, "10.0.0.1"},
		"third.pods":          {dns.TypeA, "NXDOMAIN"},
		"elsewhere":           {dns.TypeA, "database.example."},
		"missing":             {dns.TypeA, "NXDOMAIN"},
		"too.many.words.here": {dns.TypeA, "NXDOMAIN"},
	} {
		full := strings.TrimSpace(name) + "." + namespace + ".svc.cluster.local."
		for network, port := range map[string]int{"udp": server.UDPPort, "tcp": server.TCPPort} {
			if got := query(t, network, port, full, test.kind); got != test.want {
				t.Errorf("%s of type %s by %s is %q, want %q", name, dns.TypeToString[test.kind], network, got,
					test.want)
			}
		}
	}
	if got := query(t, "udp", server.UDPPort, "registry.example.", dns.TypeA); got != "NXDOMAIN" {
		t.Errorf("a name outside of the cluster is %q, want NXDOMAIN", got)
	}
}

// TestLongAnswerIsTruncatedByUDP requests many addresses, over UDP and TCP.
func TestLongAnswerIsTruncatedByUDP(t *testing.T) {
	client, namespace := cluster.Client(t), cluster.Namespace(t)
	server, err := clusterdns.Serve(t.Context(), netip.MustParseAddr("127.0.0.1"), client)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var endpoints []discoveryv1.Endpoint
	for i := range 60 {
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.1.%d", i)}})
	}
	createHeadless(t, namespace, "many", endpoints...)
	question := new(dns.Msg).SetQuestion("many."+namespace+".svc.cluster.local.", dns.TypeA)
	for network, port := range map[string]int{"udp": server.UDPPort, "tcp": server.TCPPort} {
		reply, _, err := (&dns.Client{Net: network}).ExchangeContext(t.Context(), question,
			fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil || reply.Truncated != (network == "udp") || (len(reply.Answer) == 60) == reply.Truncated {
			t.Errorf("%s: got %v, %v; want 60 answers, truncated by UDP only", network, reply, err)
		}
	}
}

// query returns the answer to a question, or its failure.
func query(t *testing.T, network string, port int, name string, kind uint16) string {
	t.Helper()
	reply, _, err := (&dns.Client{Net: network}).ExchangeContext(t.Context(), new(dns.Msg).SetQuestion(name, kind),
		fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err.Error()
	}
	if reply.Rcode != dns.RcodeSuccess {
		return dns.RcodeToString[reply.Rcode]
	}
	var all []string
	for _, record := range reply.Answer {
		switch r := record.(type) {
		case *dns.A:
			all = append(all, r.A.String())
		case *dns.CNAME:
			all = append(all, r.Target)
		case *dns.SRV:
			all = append(all, fmt.Sprintf("%d %s", r.Port, r.Target))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// createServices creates Services of each kind, and returns the address of the Service web.
func createServices(t *testing.T, namespace string) string {
	t.Helper()
	services := cluster.Client(t).CoreV1().Services(namespace)
	web, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "database.example"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	createHeadless(t, namespace, "pods",
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Hostname: ptr.To("first")},
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}, Hostname: ptr.To("second")},
		discoveryv1.Endpoint{
			Addresses:  []string{"10.0.0.3"},
			Hostname:   ptr.To("third"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)},
		})
	return web.Spec.ClusterIP
}

// createHeadless creates a Service without an address, and its endpoints.
func createHeadless(t *testing.T, namespace, name string, endpoints ...discoveryv1.Endpoint) {
	t.Helper()
	client := cluster.Client(t)
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
