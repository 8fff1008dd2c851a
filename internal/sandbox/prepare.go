package sandbox

import (
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/credentials"
)

// The contexts of a sandbox's kubeconfig, and the users behind them.
const (
	// AdminUser may do everything, by its group system:masters, which is also exempt from priority and fairness.
	AdminUser = "admin"
	// OrdinaryUser may do everything, by a binding to cluster-admin, and is throttled like any user.
	OrdinaryUser = "user"
)

// kubeletClient is the API server's user for kubelets.
const kubeletClient = "kube-apiserver"

// access contains the address of the API server, and the users of clients.
type access struct {
	server      credentials.Server
	admin, user credentials.User
}

// writeFiles writes the files that the components read: certificates, kubeconfigs and configuration. The components
// reach the API server through the gate, users at its own URL.
func (s *Sandbox) writeFiles(o Options, p ports) (*access, error) {
	ca, err := writePKI(s.home, s.nodes.ServerNames())
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodes.Configure(ca, s.home.path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	gate, err := s.gate.Listen("127.0.0.1")
	if err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	clientAccess, err := writeKubeconfigs(s.home, ca, loopbackURL(p.apiServer), "https://"+gate, nodes)
	if err != nil {
		return nil, err
	}
	return clientAccess, writeConfiguration(o, s.home, p)
}

// writePKI issues all certificates. additionalNames are names of the API server on the network of real nodes.
func writePKI(h *stateFolder, additionalNames []string) (*credentials.Authority, error) {
	ca, err := credentials.NewAuthority("sandbox-ca")
	if err != nil {
		return nil, err
	}
	etcdCA, err := credentials.NewAuthority("sandbox-etcd-ca")
	if err != nil {
		return nil, err
	}
	proxyCA, err := credentials.NewAuthority("sandbox-front-proxy-ca")
	if err != nil {
		return nil, err
	}
	type keyPair = credentials.KeyPair
	serverNames := append([]string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", serviceAddress,
	}, additionalNames...)
	pairs := map[string]func() (keyPair, error){
		"ca":                 ca.KeyPair,
		"etcd-ca":            etcdCA.KeyPair,
		"front-proxy-ca":     proxyCA.KeyPair,
		"etcd":               func() (keyPair, error) { return etcdCA.Server("localhost") },
		"etcd-client":        func() (keyPair, error) { return etcdCA.Client("kube-apiserver") },
		"front-proxy-client": func() (keyPair, error) { return proxyCA.Client("front-proxy-client") },
		"kubelet":            func() (keyPair, error) { return ca.Server("localhost") },
		"kubelet-client":     func() (keyPair, error) { return ca.Client(kubeletClient) },
		"service-account":    func() (keyPair, error) { return ca.Client("service-accounts") }, // only its key is used
		"apiserver":          func() (keyPair, error) { return ca.Server(serverNames...) },
	}
	for name, issue := range pairs {
		issued, err := issue()
		if err != nil {
			return nil, fmt.Errorf("issue certificate %s: %w", name, err)
		}
		if err := issued.Write(h.pki(), name); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// writeKubeconfigs writes one kubeconfig for people and one for each component, and the tokens in them for the API
// server.
func writeKubeconfigs(h *stateFolder, ca *credentials.Authority, serverURL, gateURL string,
	nodes []credentials.User,
) (*access, error) {
	own, err := ca.KeyPair()
	if err != nil {
		return nil, err
	}
	clientAccess := &access{
		server: credentials.Server{URL: serverURL, CA: own.Certificate},
		admin:  credentials.NewUser(AdminUser, "system:masters"),
		user:   credentials.NewUser(OrdinaryUser),
	}
	gate := credentials.Server{URL: gateURL, CA: own.Certificate}
	users := append([]credentials.User{clientAccess.admin, clientAccess.user}, nodes...)
	for name, user := range map[string]credentials.User{
		ControllerManager: credentials.NewUser("system:kube-controller-manager"),
		Scheduler:         credentials.NewUser("system:kube-scheduler"),
		Kwok:              credentials.NewUser("kwok", "system:masters"), // it acts as many kubelets
	} {
		users = append(users, user)
		if err := gate.WriteKubeconfig(kubeconfigOf(h, name), user); err != nil {
			return nil, err
		}
	}
	if err := credentials.WriteTokens(h.path("pki", "tokens.csv"), users); err != nil {
		return nil, err
	}
	return clientAccess, clientAccess.server.WriteKubeconfig(h.path("kubeconfig"), clientAccess.admin,
		clientAccess.user)
}

//go:embed kwok
var kwokConfig embed.FS

// kwokConfiguration joins the documents of the folder kwok. It replaces words like @SETTINGS@ by parts that several
// documents share: kwok's expressions and templates can't include one another.
func kwokConfiguration(p ports) (string, error) {
	settings, err := kwokPart("settings.jq")
	if err != nil {
		return "", err
	}
	exitCode, err := kwokPart("exit-code.tmpl")
	if err != nil {
		return "", err
	}
	files, err := fs.Glob(kwokConfig, "kwok/*.yaml")
	if err != nil {
		return "", err
	}
	var documents []string
	for _, file := range files {
		content, err := kwokConfig.ReadFile(file)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(content))
	}
	words := strings.NewReplacer("@SETTINGS@", settings, "@EXIT_CODE@", exitCode, "@KUBELET_PORT@",
		strconv.Itoa(p.callbacks))
	return words.Replace(strings.Join(documents, "\n---\n")), nil
}

// kwokPart returns a file of the folder kwok as one line, so that it needs no indentation.
func kwokPart(name string) (string, error) {
	content, err := kwokConfig.ReadFile(path.Join("kwok", name))
	return strings.Join(strings.Fields(string(content)), " "), err
}

// writeConfiguration writes the configuration files of kwok and the API server.
func writeConfiguration(o Options, h *stateFolder, p ports) error {
	config, err := kwokConfiguration(p)
	if err != nil {
		return err
	}
	egress, err := egressConfiguration(h, p.callbacks)
	if err != nil {
		return err
	}
	files := map[string]string{h.path("kwok.yaml"): config, h.path("egress.yaml"): egress}
	if o.AuditPolicy != "" {
		files[h.path("audit-policy.yaml")] = o.AuditPolicy
	}
	for file, content := range files {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return binaries.Explain("write the components' configuration", err)
		}
	}
	return nil
}

// ports are the loopback ports of one start. All other listeners are turned off.
type ports struct{ etcd, apiServer, callbacks int }

// reservePorts finds free loopback ports for programs, and keeps the kernel from assigning them to other programs for
// the next minute.
//
// If reservePorts only listened on port 0 and closed the listener, the next program could get the port. So it first
// opens and closes a connection, which leaves the port in TIME_WAIT: the kernel does not assign it as a free port, but
// the programs of the sandbox can bind it by number. If another program binds the same number, the start fails with
// childprocess.ErrPortTaken, and Start tries again.
func reservePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcd, &p.apiServer} {
		var err error
		if *port, err = reservePort(); err != nil {
			return p, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
		}
	}
	return p, nil
}

func reservePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	client, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	// The side that closes first enters TIME_WAIT, so the server, which has our port, closes first.
	if err := server.Close(); err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, nil
}
