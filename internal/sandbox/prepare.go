package sandbox

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// The contexts of a sandbox's kubeconfig, and the users behind them.
const (
	// AdminUser may do everything, by its group system:masters, which is also
	// exempt from priority and fairness.
	AdminUser = "admin"
	// OrdinaryUser may do everything, by a binding to cluster-admin, and is
	// throttled like any user.
	OrdinaryUser = "user"
)

// kubeletClient is the API server's user for kubelets.
const kubeletClient = "kube-apiserver"

// credentials are what clients of the API server need.
type credentials struct {
	ca          []byte
	admin, user user
}

// prepare writes the files that the components read: certificates, kubeconfigs and
// configuration. The components reach the API server through gates, users at
// its own URL.
func prepare(o Options, h *stateFolder, p ports, s *Sandbox) (*credentials, error) {
	ca, err := writePKI(h, s.nodes.serverNames())
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodes.configure(h, ca)
	if err != nil {
		return nil, err
	}
	creds, err := writeKubeconfigs(h, ca, loopbackURL(p.apiServer), "https://"+s.gate.address(), nodes)
	if err != nil {
		return nil, err
	}
	return creds, writeConfiguration(o, h, p)
}

// writePKI issues all certificates.
func writePKI(h *stateFolder, moreNames []string) (*authority, error) {
	ca, err := newAuthority("sandbox-ca")
	if err != nil {
		return nil, err
	}
	etcdCA, err := newAuthority("sandbox-etcd-ca")
	if err != nil {
		return nil, err
	}
	proxyCA, err := newAuthority("sandbox-front-proxy-ca")
	if err != nil {
		return nil, err
	}
	serverNames := append([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		moreNames...)
	pairs := map[string]func() (pair, error){
		"ca":                 ca.pair,
		"etcd-ca":            etcdCA.pair,
		"front-proxy-ca":     proxyCA.pair,
		"etcd":               func() (pair, error) { return etcdCA.server("localhost") },
		"etcd-client":        func() (pair, error) { return etcdCA.client("kube-apiserver") },
		"front-proxy-client": func() (pair, error) { return proxyCA.client("front-proxy-client") },
		"kubelet":            func() (pair, error) { return ca.server("localhost") },
		"kubelet-client":     func() (pair, error) { return ca.client(kubeletClient) },
		"service-account":    func() (pair, error) { return ca.client("service-accounts") }, // only its key counts
		"apiserver":          func() (pair, error) { return ca.server(serverNames...) },
	}
	for name, issue := range pairs {
		p, err := issue()
		if err != nil {
			return nil, fmt.Errorf("issue certificate %s: %w", name, err)
		}
		if err := p.write(h.pki(), name); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// writeKubeconfigs writes one kubeconfig for people and one for each component, and the tokens in them for the API
// server.
func writeKubeconfigs(h *stateFolder, ca *authority, server, componentURL string, nodes []user) (*credentials, error) {
	own, err := ca.pair()
	if err != nil {
		return nil, err
	}
	creds := &credentials{ca: own.cert, admin: newUser(AdminUser, "system:masters"), user: newUser(OrdinaryUser)}
	users := append([]user{creds.admin, creds.user}, nodes...)
	for component, user := range map[string]user{
		ControllerManager: newUser("system:kube-controller-manager"),
		Scheduler:         newUser("system:kube-scheduler"),
		Kwok:              newUser("kwok", "system:masters"), // it acts as many kubelets
	} {
		users = append(users, user)
		if err := writeKubeconfig(kubeconfigOf(h, component), componentURL, creds.ca, user); err != nil {
			return nil, err
		}
	}
	if err := writeTokens(h.path("pki", "tokens.csv"), users...); err != nil {
		return nil, err
	}
	return creds, writeKubeconfig(h.path("kubeconfig"), server, creds.ca, creds.admin, creds.user)
}

//go:embed kwok
var kwokConfig embed.FS

// kwokConfiguration joins the documents of the folder kwok. Words like @SETTINGS@ are replaced by parts that several
// of them share: kwok's expressions and templates can't include one another.
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
		strconv.Itoa(p.kubelet))
	return words.Replace(strings.Join(documents, "\n---\n")), nil
}

// kwokPart returns a file of the folder kwok in one line, which needs no indentation.
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
	egress, err := egressConfiguration(h, p.egress)
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
