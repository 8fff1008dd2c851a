package sandbox

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// The contexts of a sandbox's kubeconfig, and the users behind them.
const (
	// AdminUser may do everything, by its group system:masters, which is also
	// exempt from priority and fairness.
	AdminUser = "admin"
	// OrdinaryUser may do everything, by a binding to cluster-admin, and is
	// throttled like anybody.
	OrdinaryUser = "user"
)

// credentials are what clients of the API server need.
type credentials struct {
	ca          []byte
	admin, user user
}

// prepare writes all that the components read: certificates, kubeconfigs and
// configuration. The components find the API server at componentURL, users at
// its own.
func prepare(o Options, h *home, p ports, componentURL string) (*credentials, error) {
	for _, dir := range []string{h.pki(), h.logs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("prepare the sandbox: %w", err)
		}
	}
	ca, err := writePKI(h)
	if err != nil {
		return nil, err
	}
	creds, err := writeKubeconfigs(h, ca, loopbackURL(p.apiServer), componentURL)
	if err != nil {
		return nil, err
	}
	return creds, writeConfiguration(o, h)
}

// writePKI issues all certificates but those of clients of the API server, which
// are in their kubeconfigs.
func writePKI(h *home) (*authority, error) {
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
	pairs := map[string]func() (pair, error){
		"ca":                 ca.pair,
		"etcd-ca":            etcdCA.pair,
		"front-proxy-ca":     proxyCA.pair,
		"etcd":               func() (pair, error) { return etcdCA.server("localhost") },
		"etcd-client":        func() (pair, error) { return etcdCA.client("kube-apiserver") },
		"front-proxy-client": func() (pair, error) { return proxyCA.client("front-proxy-client") },
		"kubelet":            func() (pair, error) { return ca.server("localhost") },
		"kubelet-client":     func() (pair, error) { return ca.client("kube-apiserver") },
		"apiserver": func() (pair, error) {
			return ca.server("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
		},
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
	return ca, writeSigningKey(h)
}

// writeSigningKey makes the key that signs the tokens of service accounts.
func writeSigningKey(h *home) error {
	private, public, err := newSigningKey()
	if err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	return errors.Join(
		os.WriteFile(h.path("pki", "service-account.key"), private, 0o600),
		os.WriteFile(h.path("pki", "service-account.pub"), public, 0o600),
	)
}

// writeKubeconfigs writes one kubeconfig for people and one for each component.
func writeKubeconfigs(h *home, ca *authority, server, componentURL string) (*credentials, error) {
	users := map[string][]string{ // by name, with their groups
		AdminUser:         {"system:masters"},
		OrdinaryUser:      nil,
		ControllerManager: nil,
		Scheduler:         nil,
		Kwok:              {"system:masters"},
	}
	accounts := map[string]string{ // where the user's name is not the component's
		ControllerManager: "system:kube-controller-manager",
		Scheduler:         "system:kube-scheduler",
	}
	creds := &credentials{ca: encodeCert(ca.cert.Raw)}
	issued := map[string]user{}
	for name, groups := range users {
		account := name
		if mapped, ok := accounts[name]; ok {
			account = mapped
		}
		p, err := ca.client(account, groups...)
		if err != nil {
			return nil, fmt.Errorf("issue certificate %s: %w", name, err)
		}
		issued[name] = user{name, p}
	}
	creds.admin, creds.user = issued[AdminUser], issued[OrdinaryUser]
	for _, component := range []string{ControllerManager, Scheduler, Kwok} {
		if err := writeKubeconfig(kubeconfigOf(h, component), componentURL, creds.ca, issued[component]); err != nil {
			return nil, err
		}
	}
	return creds, writeKubeconfig(h.path("kubeconfig"), server, creds.ca, creds.admin, creds.user)
}

//go:embed kwok/*.yaml
var kwokConfig embed.FS

// writeConfiguration writes the configuration files of kwok and the API server.
func writeConfiguration(o Options, h *home) error {
	entries, err := kwokConfig.ReadDir("kwok")
	if err != nil {
		return err
	}
	var documents []string
	for _, entry := range entries {
		content, err := kwokConfig.ReadFile(path.Join("kwok", entry.Name()))
		if err != nil {
			return err
		}
		documents = append(documents, string(content))
	}
	config := strings.ReplaceAll(strings.Join(documents, "\n---\n"), "@POD_LOG@", h.podLog())
	files := map[string]string{
		h.path("kwok.yaml"): config,
		h.podLog():          time.Now().Format(time.RFC3339Nano) + " stdout F simulated by kwok\n",
	}
	if o.AuditPolicy != "" {
		files[h.path("audit-policy.yaml")] = o.AuditPolicy
	}
	for file, content := range files {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the components' configuration: %w", err)
		}
	}
	return nil
}

// podLog is the file whose lines are the log of every container.
func (h *home) podLog() string { return h.path("pods.log") }
