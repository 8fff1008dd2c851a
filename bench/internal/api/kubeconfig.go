// Package api talks to an API server with as little as that takes.
//
// It knows one kubeconfig (the sandbox's), and requests of bytes; no
// types, no caches, no limits. So the driver is small enough not to be taken for one of those it
// measures. Start with Open.
package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// A kubeconfig is what we read of one.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server string
			CA     []byte `json:"certificate-authority-data"`
		}
	}
	Users []struct {
		Name string
		User struct {
			Certificate []byte `json:"client-certificate-data"`
			Key         []byte `json:"client-key-data"`
			Token       string `json:"token"`
		}
	}
}

// A target is where the current context leads, and as whom: with a token, or a client certificate.
type target struct {
	address, token string
	tls            *tls.Config
}

// readKubeconfig reads the target of a kubeconfig.
func readKubeconfig(file string) (target, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return target{}, err
	}
	var k kubeconfig
	if err := yaml.Unmarshal(content, &k); err != nil {
		return target{}, fmt.Errorf("%s: %w", file, err)
	}
	at, as, err := k.current()
	if err != nil {
		return target{}, fmt.Errorf("%s: %w", file, err)
	}
	cluster, user := k.Clusters[at].Cluster, k.Users[as].User
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.CA)
	to := target{address: cluster.Server, token: user.Token, tls: &tls.Config{RootCAs: roots}}
	if len(user.Certificate) > 0 {
		certificate, err := tls.X509KeyPair(user.Certificate, user.Key)
		if err != nil {
			return target{}, fmt.Errorf("%s: user %s: %w", file, k.Users[as].Name, err)
		}
		to.tls.Certificates = []tls.Certificate{certificate}
	}
	return to, nil
}

// current finds the cluster and the user of the current context.
func (k *kubeconfig) current() (cluster, user int, err error) {
	for _, context := range k.Contexts {
		if context.Name != k.CurrentContext {
			continue
		}
		cluster, user = -1, -1
		for i := range k.Clusters {
			if k.Clusters[i].Name == context.Context.Cluster {
				cluster = i
			}
		}
		for i := range k.Users {
			if k.Users[i].Name == context.Context.User {
				user = i
			}
		}
		if cluster >= 0 && user >= 0 {
			return cluster, user, nil
		}
	}
	return 0, 0, fmt.Errorf("the context %q is not there, or names a cluster or a user that is not", k.CurrentContext)
}

// As writes a copy of a kubeconfig with another current context.
func As(context, from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var whole map[string]any
	if err := yaml.Unmarshal(content, &whole); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	whole["current-context"] = context
	if content, err = yaml.Marshal(whole); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}
