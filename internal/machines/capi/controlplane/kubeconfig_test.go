package controlplane_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

const kubeconfigAvailable = "KubeconfigAvailable"

// A signingAuthority signs the certificates of clients.
type signingAuthority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newSigningAuthority(t *testing.T) *signingAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "c"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &signingAuthority{certificate, key}
}

// data returns the data of the Secret of the authority.
func (a *signingAuthority) data(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(a.key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"tls.crt": pemOf(a.certificate.Raw), "tls.key": key}
}

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate})
}

// age returns a kubeconfig with a certificate that ends after a while.
func (a *signingAuthority) age(t *testing.T, config *clientcmdapi.Config, remaining time.Duration) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(remaining)}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificateData = pemOf(signed)
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// awaitKubeconfig waits until the kubeconfig leads to a server, and its certificate lasts for so long.
func (f *fixture) awaitKubeconfig(server string,
	remaining time.Duration) (*corev1.Secret, *clientcmdapi.Config, *x509.Certificate) {
	f.Helper()
	var config *clientcmdapi.Config
	var certificate *x509.Certificate
	secret := machinetest.Await(f, f, &corev1.Secret{}, f.Key("c-kubeconfig"), func(s *corev1.Secret) bool {
		var err error
		config, err = clientcmd.Load(s.Data["value"])
		f.Must(err)
		certificates, err := cert.ParseCertsPEM(config.AuthInfos["c-admin"].ClientCertificateData)
		f.Must(err)
		certificate = certificates[0]
		return config.Clusters["c"].Server == server && time.Until(certificate.NotAfter) > remaining
	})
	return secret, config, certificate
}

// TestKubeconfig writes the kubeconfig of a cluster once there is a CA, and renews it.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	p.runPlane(stage.Sandbox(t).Config)
	p.awaitCondition(kubeconfigAvailable, metav1.ConditionFalse,
		"Secret c-ca can't be read: create it with tls.crt and tls.key")
	authority := newSigningAuthority(t)
	ca := &corev1.Secret{ObjectMeta: p.Meta("c-ca"), Data: map[string][]byte{"tls.crt": []byte("?")}}
	p.MustCreate(ca)
	for _, c := range []struct {
		data map[string][]byte
		text string
	}{
		{map[string][]byte{"tls.crt": []byte("?")}, "Secret c-ca: tls.crt has no certificate: write it as PEM"},
		{map[string][]byte{"tls.crt": pemOf(authority.certificate.Raw), "tls.key": []byte("?")},
			"tls.key has no private key: write it as PEM"},
		{map[string][]byte{
			"tls.crt": pemOf(authority.certificate.Raw),
			"tls.key": newSigningAuthority(t).data(t)["tls.key"],
		}, "tls.key does not belong to tls.crt"},
	} {
		ca.Data = c.data
		p.Must(p.Update(t.Context(), ca))
		p.nudge()
		p.awaitCondition(kubeconfigAvailable, metav1.ConditionFalse, c.text)
	}
	ca.Data = authority.data(t)
	p.Must(p.Update(t.Context(), ca))
	const year = 365 * 24 * time.Hour
	secret, _, certificate := p.awaitKubeconfig("https://10.0.0.1:6443", year-time.Hour)
	p.awaitCondition(kubeconfigAvailable, metav1.ConditionTrue, "")
	if secret.Type != clusterv1.ClusterSecretType || secret.Labels[clusterv1.ClusterNameLabel] != "c" ||
		!metav1.IsControlledBy(secret, p.plane) {
		t.Errorf("%s, %v, %v", secret.Type, secret.Labels, secret.OwnerReferences)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.certificate)
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots:     trusted,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Error(err)
	}
	if name := certificate.Subject; name.CommonName != "kubernetes-admin" || name.Organization[0] != "system:masters" {
		t.Errorf("subject of the certificate: got %s, want kubernetes-admin of system:masters", name)
	}
	p.MustPatch(&clusterv1.Cluster{ObjectMeta: p.Meta("c")}, `{"spec":{"controlPlaneEndpoint":{"host":"fd00::1"}}}`)
	_, config, _ := p.awaitKubeconfig("https://[fd00::1]:6443", year-time.Hour)

	secret.Data["value"] = authority.age(t, config, year/2-time.Hour)
	secret.ResourceVersion = ""
	p.Must(p.Update(t.Context(), secret))
	p.nudge()
	p.awaitKubeconfig("https://[fd00::1]:6443", year-time.Hour)
}

// TestKubeconfigOfOthers checks that a kubeconfig of a user is left alone, and one whose certificate is valid for long
// enough.
func TestKubeconfigOfOthers(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	authority := newSigningAuthority(t)
	theirs := &corev1.Secret{ObjectMeta: p.Meta("c-kubeconfig"), Data: map[string][]byte{"value": []byte("theirs")}}
	p.MustCreate(theirs, &corev1.Secret{ObjectMeta: p.Meta("c-ca"), Data: authority.data(t)})
	p.runPlane(stage.Sandbox(t).Config)
	p.awaitCondition(kubeconfigAvailable, metav1.ConditionTrue, "")
	p.pass()
	if p.MustGet(theirs); string(theirs.Data["value"]) != "theirs" {
		t.Errorf("%s", theirs.Data)
	}
	p.MustDelete(theirs)
	p.nudge()
	const halfYear = 365 * 12 * time.Hour
	ours, config, _ := p.awaitKubeconfig("https://10.0.0.1:6443", halfYear)
	aged := authority.age(t, config, halfYear+time.Hour)
	ours.Data["value"] = aged
	p.Must(p.Update(t.Context(), ours))
	p.pass()
	if p.MustGet(ours); string(ours.Data["value"]) != string(aged) {
		t.Error("a kubeconfig was renewed before half of its time was over")
	}
}

// TestKubeconfigWithoutRights checks that the controller reports that it may not read Secrets, and continues with the
// machines.
func TestKubeconfigWithoutRights(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	all := func(groups ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: []string{"*"}, Verbs: []string{"*"}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}, Rules: []rbacv1.PolicyRule{
		all("cluster.x-k8s.io", "runtime.cluster.x-k8s.io", "infrastructure.runlevel.dev", "controlplane.runlevel.dev",
			"events.k8s.io", "apiextensions.k8s.io"),
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	binding.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.Namespace, Name: "limited"}}
	p.MustCreate(role, binding)
	p.DeleteAfterwards(role)
	p.DeleteAfterwards(binding)
	p.runMachines()
	p.runPlane(stage.Account(t, p.Namespace, "limited"))
	p.awaitCondition(kubeconfigAvailable, metav1.ConditionFalse,
		"may not read Secrets here: bind ClusterRole machine-controller-kubeconfigs")
	p.awaitSettled(1)
}
