package controlplane

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

const (
	// kubeconfigKey is the key of a kubeconfig in its Secret, by Cluster API's contract.
	kubeconfigKey = "value"
	// clientLifetime is the validity of the certificate in a kubeconfig, which is renewed after half of that time.
	clientLifetime = 365 * 24 * time.Hour
	// kubeconfigPause is the time until the next look at the endpoint and the Secrets that a kubeconfig requires, and
	// keptPause until the next look at an existing kubeconfig: Secrets are not watched.
	kubeconfigPause = 15 * time.Second
	keptPause       = 5 * time.Minute
)

// A kubeconfigProblem is the message of the condition while no kubeconfig exists. Machines do not wait for it.
type kubeconfigProblem string

// writeKubeconfig writes the Secret CLUSTER-kubeconfig, with which Cluster API's controllers connect to the cluster,
// unless another writer has created it. Its certificate is signed by the CA in the Secret CLUSTER-ca.
func (r *Reconciler) writeKubeconfig(ctx context.Context, s *Snapshot) error {
	defer func() {
		s.lookAgain(keptPause)
		if s.kubeconfig != "" {
			s.lookAgain(kubeconfigPause)
		}
	}()
	endpoint := s.endpoint()
	if endpoint == "" {
		s.kubeconfig = kubeconfigProblem(fmt.Sprintf(
			"Cluster %s has no spec.controlPlaneEndpoint, and neither has the control plane", s.cluster.Name,
		))
		return nil
	}
	secret := &corev1.Secret{}
	err := r.machines.Live.Get(ctx,
		client.ObjectKey{Namespace: s.plane.Namespace, Name: s.cluster.Name + "-kubeconfig"}, secret)
	switch {
	case apierrors.IsForbidden(err):
		s.kubeconfig = kubeconfigProblem("the controller may not read Secrets here: bind ClusterRole " +
			"machine-controller-kubeconfigs to its service account in this namespace")
		return nil
	case err == nil && (replicas.OwnerOf(secret, s.plane.UID) != replicas.Ours ||
		isKubeconfigCurrent(secret, endpoint, s.time)):
		return nil
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	authority := &corev1.Secret{}
	if err := r.machines.Live.Get(ctx, client.ObjectKey{Namespace: s.plane.Namespace, Name: s.cluster.Name + "-ca"},
		authority); err != nil {
		s.kubeconfig = kubeconfigProblem(fmt.Sprintf("Secret %s-ca can't be read: create it with tls.crt and tls.key "+
			"of the CA that signs client certificates", s.cluster.Name))
		return client.IgnoreNotFound(err)
	}
	config, err := newKubeconfig(s.cluster.Name, endpoint, authority.Data, s.time)
	if err != nil {
		s.kubeconfig = kubeconfigProblem(fmt.Sprintf("Secret %s-ca: %v", s.cluster.Name, err))
		return nil
	}
	return r.applyKubeconfig(ctx, s, secret, config)
}

// applyKubeconfig creates the Secret of a kubeconfig, or updates the one that was read.
func (r *Reconciler) applyKubeconfig(ctx context.Context, s *Snapshot, secret *corev1.Secret, config []byte) error {
	var err error
	if secret.Name != "" {
		secret.Data = map[string][]byte{kubeconfigKey: config}
		err = r.Client.Update(ctx, secret)
	} else {
		err = r.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.plane.Namespace, Name: s.cluster.Name + "-kubeconfig",
				OwnerReferences: []metav1.OwnerReference{ownerOf(s.plane)},
				Labels:          map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			},
			Type: clusterv1.ClusterSecretType, Data: map[string][]byte{kubeconfigKey: config},
		})
	}
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// endpoint returns the URL of the API servers; empty if it is not known.
func (s *Snapshot) endpoint() string {
	endpoint := s.cluster.Spec.ControlPlaneEndpoint
	if endpoint.Host == "" {
		endpoint = s.plane.Spec.ControlPlaneEndpoint
	}
	if endpoint.Host == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
}

// isKubeconfigCurrent reports whether a kubeconfig leads to the endpoint, and its certificate has more than half of its
// time left.
func isKubeconfigCurrent(secret *corev1.Secret, endpoint string, now time.Time) bool {
	config, err := clientcmd.Load(secret.Data[kubeconfigKey])
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return false
	}
	current := config.Contexts[config.CurrentContext]
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil || cluster.Server != endpoint {
		return false
	}
	certificates, err := cert.ParseCertsPEM(user.ClientCertificateData)
	return err == nil && certificates[0].NotAfter.Sub(now) > clientLifetime/2
}

// newKubeconfig returns a kubeconfig of an administrator.
func newKubeconfig(cluster, endpoint string, authority map[string][]byte, now time.Time) ([]byte, error) {
	authorities, err := cert.ParseCertsPEM(authority[corev1.TLSCertKey])
	if err != nil {
		return nil, fmt.Errorf("tls.crt has no certificate: write it as PEM")
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(authority[corev1.TLSPrivateKeyKey])
	signer, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("tls.key has no private key: write it as PEM")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{
			CommonName:   "kubernetes-admin",
			Organization: []string{"system:masters"},
		},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(clientLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authorities[0], key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("tls.key does not belong to tls.crt: %w", err)
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	const user = "admin"
	name := cluster + "-" + user
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {
			Server:                   endpoint,
			CertificateAuthorityData: bytes.Clone(authority[corev1.TLSCertKey]),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: signed}),
			ClientKeyData:         private,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: cluster, AuthInfo: name}},
		CurrentContext: name,
	}
	return clientcmd.Write(config)
}
