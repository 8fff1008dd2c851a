// Package kubeconfig finds the configuration of a connection to a cluster as kubectl does: in a named file, in those of
// $KUBECONFIG, in ~/.kube/config, or in the service account of a pod.
//
// It connects to nothing, and names no flags: a command line adds those to the errors that have names here.
//
// Start with Location.Config.
package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The reasons why a Location has no configuration that a user can resolve by naming another one.
var (
	ErrNoCluster = errors.New("there is no cluster in the kubeconfig")
	ErrNoFile    = errors.New("the kubeconfig does not exist")
	ErrNoContext = errors.New("the kubeconfig has no such context")
)

// A Location is where a configuration is. The zero value is that of kubectl without flags.
type Location struct {
	File    string // "" for the default ones
	Context string // "" for the current one
	As      string // the user to impersonate; "" for none

	read *clientcmdapi.Config // the content of the files, if they were read
}

// Read reads the files once, for the contexts that are set afterwards.
func (l Location) Read() (Location, error) {
	raw, err := l.loader().RawConfig()
	l.read = &raw
	return l, err
}

func (l Location) loader() clientcmd.ClientConfig {
	if l.read != nil {
		return clientcmd.NewNonInteractiveClientConfig(*l.read, l.Context, &clientcmd.ConfigOverrides{}, nil)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = l.File
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: l.Context})
}

// Config returns the configuration. Its host has no password, which would be logged and printed.
func (l Location) Config() (*rest.Config, error) {
	config, err := l.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, ErrNoCluster
	case errors.Is(err, os.ErrNotExist) && !l.exists(): // otherwise the kubeconfig refers to a missing file
		return nil, ErrNoFile
	case err != nil && l.Context != "" && !slices.Contains(l.Contexts(), l.Context):
		return nil, ErrNoContext
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if l.As != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: l.As}
	}
	return config, hidePassword(config)
}

// exists reports whether the file exists, or is not set.
func (l Location) exists() bool {
	if l.File == "" {
		return true
	}
	_, err := os.Stat(l.File)
	return err == nil
}

// Contexts returns the names of the contexts.
func (l Location) Contexts() []string {
	raw, err := l.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// ClusterName returns the name of the context's cluster; "" in a pod.
func (l Location) ClusterName() string {
	raw, err := l.loader().RawConfig()
	if err != nil {
		return ""
	}
	name := raw.CurrentContext
	if l.Context != "" {
		name = l.Context
	}
	if found := raw.Contexts[name]; found != nil {
		return found.Cluster
	}
	return ""
}

// Namespace returns the namespace of the context.
func (l Location) Namespace() string {
	namespace, _, err := l.loader().Namespace()
	if err != nil {
		return "default"
	}
	return namespace
}

// hidePassword moves a user and password from the server's URL into the fields for them. The URL's own take precedence,
// as in net/http.
func hidePassword(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	var unparsed *url.Error
	switch {
	case errors.As(err, &unparsed):
		return fmt.Errorf("kubeconfig: the server's URL: %w", unparsed.Err) // omits the URL
	case err != nil: // it has the URL, whose password may be the reason
		return errors.New("kubeconfig: the server must be a URL, or HOST:PORT")
	case server.User == nil:
		return nil
	}
	config.Username, config.BearerToken, config.BearerTokenFile = server.User.Username(), "", ""
	config.Password, _ = server.User.Password()
	server.User = nil
	config.Host = server.String()
	return nil
}
