package hostpods

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A token is replaced when 4/5 of its life are over, as a kubelet does.
const renewAt = 0.8

// A tokenClient requests tokens of service accounts.
type tokenClient interface {
	CreateToken(ctx context.Context, account string, request *authenticationv1.TokenRequest,
		o metav1.CreateOptions) (*authenticationv1.TokenRequest, error)
}

// tokens are those of one pod. They are worth nothing once the pod is gone.
type tokens struct {
	client  tokenClient
	account string
	pod     *authenticationv1.BoundObjectReference
	now     func() time.Time

	mu   sync.Mutex
	held map[corev1.ServiceAccountTokenProjection]heldToken
}

type heldToken struct {
	text  []byte
	renew time.Time
}

func newTokens(client tokenClient, pod *corev1.Pod) tokens {
	return tokens{
		client: client, account: pod.Spec.ServiceAccountName, now: time.Now,
		pod:  &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		held: map[corev1.ServiceAccountTokenProjection]heldToken{},
	}
}

// get returns a token that is valid for some time yet.
func (t *tokens) get(ctx context.Context, kind corev1.ServiceAccountTokenProjection) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := kind.ExpirationSeconds
	kind.ExpirationSeconds = nil // a pointer would make each kind another one
	if held, ok := t.held[kind]; ok && t.now().Before(held.renew) {
		return held.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: t.pod, ExpirationSeconds: seconds,
	}}
	if kind.Audience != "" {
		request.Spec.Audiences = []string{kind.Audience}
	}
	granted, err := t.client.CreateToken(ctx, t.account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s: %w", t.account, err)
	}
	life := granted.Status.ExpirationTimestamp.Sub(t.now())
	held := heldToken{
		text:  []byte(granted.Status.Token),
		renew: t.now().Add(time.Duration(renewAt * float64(life))),
	}
	t.held[kind] = held
	return held.text, nil
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
