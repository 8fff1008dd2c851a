package sandbox

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// A user authenticates by a token, as the accounts of pods do. An API server caches the user of a token for some
// seconds, but verifies a client certificate at each request, which took a tenth of the time of our tests.
type user struct {
	name   string
	groups []string
	token  string
}

// newUser returns a user with a token of its own.
func newUser(name string, groups ...string) user {
	return user{name: name, groups: groups, token: rand.Text()}
}

// writeTokens writes the file in which the API server looks up users by their tokens: a line for each, with token,
// name, UID and groups.
func writeTokens(file string, users ...user) error {
	var lines bytes.Buffer
	w := csv.NewWriter(&lines)
	for _, user := range users {
		// a buffer takes everything
		_ = w.Write([]string{user.token, user.name, user.name, strings.Join(user.groups, ",")})
	}
	w.Flush()
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		return binaries.Explain("write the users' tokens", err)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig with a context per user, named after it;
// the first one is the current context.
func writeKubeconfig(file, server string, ca []byte, users ...user) error {
	if err := clientcmd.WriteToFile(*newKubeconfig(server, ca, users...), file); err != nil {
		return binaries.Explain("write kubeconfig", err)
	}
	return nil
}

// kubeconfigText returns the text of a kubeconfig.
func kubeconfigText(server string, ca []byte, users ...user) ([]byte, error) {
	return clientcmd.Write(*newKubeconfig(server, ca, users...))
}

func newKubeconfig(server string, ca []byte, users ...user) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	for _, user := range users {
		config.AuthInfos[user.name] = &clientcmdapi.AuthInfo{Token: user.token}
		config.Contexts[user.name] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: user.name}
	}
	config.CurrentContext = users[0].name
	return config
}

// restConfig returns the same as a client configuration. The client has no rate limit: the server's
// priority and fairness applies.
func restConfig(server string, ca []byte, user user) *rest.Config {
	return &rest.Config{
		Host:            server,
		BearerToken:     user.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		QPS:             -1,
	}
}
