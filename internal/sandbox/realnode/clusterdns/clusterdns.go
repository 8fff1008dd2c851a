// Package clusterdns answers the DNS queries of pods on real nodes, as a small part of a cluster's resolver.
//
// The zone cluster.local has the addresses of Services, of the pods behind headless Services, with their hostnames,
// ports (SRV), and external names. Other names do not exist, since nodes of a sandbox reach no other network. Each
// query reads from the API server, so that an answer is never older than the cluster's state.
//
// Start with Serve.
package clusterdns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	zone = "svc.cluster.local."
	// ttl is the time for which clients may cache an answer, in seconds. Tests change Services and query again.
	ttl = 1
	// queryTimeout is shorter than the time after which a C library repeats its query.
	queryTimeout = 4 * time.Second
)

// errUnknown is the error of a name that does not exist.
var errUnknown = errors.New("no such name")

// A Server answers queries until it is closed.
type Server struct {
	UDPPort, TCPPort int

	client   kubernetes.Interface
	ctx      context.Context
	cancel   context.CancelFunc
	udp, tcp *dns.Server
}

// Serve listens on free ports of an address. The end of ctx does not stop the server.
func Serve(ctx context.Context, address netip.Addr, client kubernetes.Interface) (*Server, error) {
	packets, err := net.ListenPacket("udp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		packets.Close()
		return nil, err
	}
	s := &Server{
		client:  client,
		UDPPort: packets.LocalAddr().(*net.UDPAddr).Port,
		TCPPort: listener.Addr().(*net.TCPAddr).Port,
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.udp, s.tcp = &dns.Server{PacketConn: packets, Handler: s}, &dns.Server{Listener: listener, Handler: s}
	for _, server := range []*dns.Server{s.udp, s.tcp} {
		go func() { _ = server.ActivateAndServe() }()
	}
	return s, nil
}

// Close stops the server.
func (s *Server) Close() {
	s.cancel()
	_ = s.udp.PacketConn.Close()
	_ = s.tcp.Listener.Close()
}

// ServeDNS answers one query.
func (s *Server) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	reply := new(dns.Msg).SetReply(query)
	reply.Authoritative = true
	for _, question := range query.Question {
		answers, err := s.answer(ctx, question)
		switch {
		case errors.Is(err, errUnknown):
			reply.Rcode = dns.RcodeNameError
		case err != nil:
			reply.Rcode = dns.RcodeServerFailure
		}
		reply.Answer = append(reply.Answer, answers...)
	}
	if w.LocalAddr().Network() == "udp" {
		size := dns.MinMsgSize
		if options := query.IsEdns0(); options != nil {
			size = max(size, int(options.UDPSize()))
		}
		reply.Truncate(size)
	}
	_ = w.WriteMsg(reply) // a client without an answer repeats its query
}

// answer returns the records of a name that have the type of the question, or nothing if all records of the name have
// other types.
func (s *Server) answer(ctx context.Context, question dns.Question) ([]dns.RR, error) {
	records, err := s.records(ctx, question.Name)
	var answers []dns.RR
	for _, record := range records {
		switch found := record.Header(); {
		case found.Rrtype == question.Qtype, found.Rrtype == dns.TypeCNAME && question.Qtype != dns.TypeSRV:
			answers = append(answers, record)
		}
	}
	return answers, err
}

// records returns all records of SERVICE.NAMESPACE, HOSTNAME.SERVICE.NAMESPACE or _PORT._PROTOCOL.SERVICE.NAMESPACE.
func (s *Server) records(ctx context.Context, name string) ([]dns.RR, error) {
	prefix, ok := strings.CutSuffix(strings.ToLower(name), "."+zone)
	labels := strings.Split(prefix, ".")
	if !ok || len(labels) < 2 || len(labels) > 4 {
		return nil, errUnknown
	}
	serviceName, namespace := labels[len(labels)-2], labels[len(labels)-1]
	service, err := s.client.CoreV1().Services(namespace).Get(ctx, serviceName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errUnknown
	case err != nil:
		return nil, err
	case len(labels) == 4:
		return ports(name, labels[0], labels[1], service)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return []dns.RR{&dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: dns.Fqdn(service.Spec.ExternalName)}}, nil
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return s.endpoints(ctx, name, strings.Join(labels[:len(labels)-2], ""), service)
	case len(labels) == 3:
		return nil, errUnknown
	default:
		return addresses(name, service.Spec.ClusterIPs), nil
	}
}

// endpoints returns the addresses of the pods behind a headless Service: those with the hostname, or all.
func (s *Server) endpoints(ctx context.Context, name, hostname string, service *corev1.Service) ([]dns.RR, error) {
	slices, err := s.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return nil, err
	}
	var records []dns.RR
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			isReady := ptr.Deref(endpoint.Conditions.Ready, true) || service.Spec.PublishNotReadyAddresses
			if isReady && (hostname == "" || hostname == ptr.Deref(endpoint.Hostname, "")) {
				records = append(records, addresses(name, endpoint.Addresses)...)
			}
		}
	}
	if len(records) == 0 {
		return nil, errUnknown
	}
	return records, nil
}

// ports returns the records of a named port of a Service.
func ports(name, port, protocol string, service *corev1.Service) ([]dns.RR, error) {
	for _, p := range service.Spec.Ports {
		if "_"+p.Name == port && "_"+strings.ToLower(string(p.Protocol)) == protocol {
			return []dns.RR{&dns.SRV{
				Hdr: header(name, dns.TypeSRV), Port: uint16(p.Port),
				Target: strings.Join([]string{service.Name, service.Namespace, zone}, "."),
			}}, nil
		}
	}
	return nil, errUnknown
}

func addresses(name string, texts []string) []dns.RR {
	var records []dns.RR
	for _, text := range texts {
		if ip := net.ParseIP(text); ip.To4() != nil { // the network of the nodes has IPv4 only
			records = append(records, &dns.A{Hdr: header(name, dns.TypeA), A: ip})
		}
	}
	return records
}

func header(name string, recordType uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: recordType, Class: dns.ClassINET, Ttl: ttl}
}
