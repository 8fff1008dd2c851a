package credentials

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

// A User authenticates with a token, as the accounts of pods do. An API server caches the user of a token for some
// seconds, but verifies a client certificate at each request, which took a tenth of the time of our tests.
type User struct {
	Name      string
	groups    []string
	token     string
	tokenFile string // instead of a token
	namespace string // namespace of the context in a kubeconfig
}

// NewUser returns a user with a new token.
func NewUser(name string, groups ...string) User {
	return User{Name: name, groups: groups, token: rand.Text()}
}

// NewPodUser returns the user of a pod, who has a token in a file.
func NewPodUser(tokenFile, namespace string) User {
	return User{Name: "pod", tokenFile: tokenFile, namespace: namespace}
}

// WriteTokens writes the file in which the API server looks up users by their tokens: a line for each, with token,
// name, UID and groups.
func WriteTokens(file string, users []User) error {
	var lines bytes.Buffer
	w := csv.NewWriter(&lines)
	for _, user := range users {
		// A write to a buffer does not fail.
		_ = w.Write([]string{user.token, user.Name, user.Name, strings.Join(user.groups, ",")})
	}
	w.Flush()
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		return binaries.Explain("write the users' tokens", err)
	}
	return nil
}

// A Server contains the address and the authority of an API server.
type Server struct {
	URL string
	CA  []byte // certificate of its authority, in PEM
}

// WriteKubeconfig writes a kubeconfig with a context for each user, which is named after the user. The context of the
// first user is the current context.
func (s Server) WriteKubeconfig(file string, users ...User) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.CA}
	for _, user := range users {
		config.AuthInfos[user.Name] = &clientcmdapi.AuthInfo{Token: user.token, TokenFile: user.tokenFile}
		config.Contexts[user.Name] = &clientcmdapi.Context{
			Cluster: "sandbox", AuthInfo: user.Name, Namespace: user.namespace,
		}
	}
	config.CurrentContext = users[0].Name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return binaries.Explain("write kubeconfig", err)
	}
	return nil
}

// RESTConfig returns the configuration of a user's client. The client has no rate limit: the server's priority and
// fairness applies.
func (s Server) RESTConfig(user User) *rest.Config {
	return &rest.Config{
		Host: s.URL, BearerToken: user.token, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA}, QPS: -1,
	}
}
