package hostpods

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenLifetime is as long as that of the sandbox's certificates, so that no token is renewed.
const tokenLifetime = 30 * 24 * time.Hour

// token returns a token of the pod's service account, which is valid as long as the pod exists. It requests one token
// for each audience.
func (p *hostPod) token(ctx context.Context, audience string) ([]byte, error) {
	if token, isKnown := p.tokens[audience]; isKnown {
		return token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: p.first.Name, UID: p.first.UID,
		},
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)),
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	account := p.first.Spec.ServiceAccountName
	accounts := p.host.client.CoreV1().ServiceAccounts(p.first.Namespace)
	granted, err := accounts.CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s: %w", account, err)
	}
	p.tokens[audience] = []byte(granted.Status.Token)
	return p.tokens[audience], nil
}

// writeKubeconfig writes a kubeconfig whose user is the one of a token's file.
func (c *container) writeKubeconfig(file, tokenFile string) error {
	config := rest.CopyConfig(c.pod.host.options.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("read the certificate of the API server's authority: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	written := clientcmdapi.NewConfig()
	written.Clusters["sandbox"] = &clientcmdapi.Cluster{
		Server:                   server.String(),
		CertificateAuthorityData: config.CAData,
	}
	written.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	written.Contexts["pod"] = &clientcmdapi.Context{
		Cluster:   "sandbox",
		AuthInfo:  "pod",
		Namespace: c.pod.first.Namespace,
	}
	written.CurrentContext = "pod"
	if err := clientcmd.WriteToFile(*written, file); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}
