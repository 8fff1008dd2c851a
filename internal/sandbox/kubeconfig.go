package sandbox

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// A user authenticates by a client certificate.
type user struct {
	name string
	pair pair
}

// writeKubeconfig writes a kubeconfig with a context per user, named after it;
// the first one is the current context.
func writeKubeconfig(file, server string, ca []byte, users ...user) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	for _, user := range users {
		config.AuthInfos[user.name] = &clientcmdapi.AuthInfo{
			ClientCertificateData: user.pair.cert,
			ClientKeyData:         user.pair.key,
		}
		config.Contexts[user.name] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: user.name}
	}
	config.CurrentContext = users[0].name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return binaries.Explain("write kubeconfig", err)
	}
	return nil
}

// restConfig is the same for Go. The client limits nothing: the server's
// priority and fairness decides.
func restConfig(server string, ca []byte, user user) *rest.Config {
	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   ca,
			CertData: user.pair.cert,
			KeyData:  user.pair.key,
		},
		QPS: -1,
	}
}
