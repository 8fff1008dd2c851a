package extensionconfig_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
	"github.com/runlevel/runlevel/manifests"
)

// user is the user of the controller. It has only the rights of the payload.
const user = "extension-controller"

// payloadRights gives the user the rights that the payload gives the controller for ExtensionConfigs, and returns how
// the user reaches the API server.
func payloadRights(t *testing.T) *rest.Config {
	t.Helper()
	c := shared.Client(t)
	role := &rbacv1.ClusterRole{}
	for _, object := range manifests.Objects() {
		if object.GetKind() == "ClusterRole" && object.GetName() == "machine-controller-extensions-cluster-api" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
				t.Fatal(err)
			}
		}
	}
	role.ObjectMeta = metav1.ObjectMeta{Name: user}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, Subjects: subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}
	if err := c.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(shared.Sandbox(t).Config)
	config.Impersonate.UserName = user
	return config
}

func subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
}

// allowSecret lets the user read one Secret.
func (f *fixture) allowSecret(name string) {
	f.Helper()
	about := f.Meta("extension-ca")
	f.MustCreate(&rbacv1.Role{ObjectMeta: about, Rules: []rbacv1.PolicyRule{
		{
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: []string{name},
			Verbs:         []string{"get"},
		},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: about, Subjects: subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: about.Name},
	})
}

// TestAuthorityOfASecret follows a Secret with a certificate authority, with the rights of the payload and of a Role
// that an administrator creates: it is created late, lacks its certificate, becomes valid, and changes.
func TestAuthorityOfASecret(t *testing.T) {
	s := newFixtureAs(t, payloadRights(t))
	extension := s.newExtension(handlers)
	where := extension.ClientConfig()
	where.CABundle = nil
	secret := s.Namespace + "/ca"
	config := s.create("ext", where, func(c *runtimev1.ExtensionConfig) {
		c.Annotations = map[string]string{runtimev1.InjectCAFromSecretAnnotation: "ca"}
	})
	notDiscovered := func(text string) {
		s.Helper()
		s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionFalse, text)
	}
	notDiscovered("names Secret ca: write NAMESPACE/NAME")
	s.MustPatch(config, `{"metadata":{"annotations":{%q:%q}}}`, runtimev1.InjectCAFromSecretAnnotation, secret)
	notDiscovered("names Secret " + secret + ": the controller has no right to read it")
	s.allowSecret("ca")
	notDiscovered("names Secret " + secret + ": the Secret does not exist")
	authority := &corev1.Secret{ObjectMeta: s.Meta("ca")}
	s.MustCreate(authority)
	notDiscovered("names Secret " + secret + ": it has no ca.crt")
	s.setAuthority(authority, []byte("none"))
	notDiscovered("spec.clientConfig.caBundle has no certificate in PEM form")
	s.setAuthority(authority, extension.CA())
	config = s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
	if !bytes.Equal(config.Spec.ClientConfig.CABundle, extension.CA()) {
		t.Errorf("the bundle is %s", config.Spec.ClientConfig.CABundle)
	}
	both := append(runtimehooktest.New(t).CA(), extension.CA()...)
	s.setAuthority(authority, both)
	s.awaitConfig("ext", func(c *runtimev1.ExtensionConfig) bool {
		return bytes.Equal(c.Spec.ClientConfig.CABundle, both)
	})
	s.await("ext", runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue, "")
}

// setAuthority sets the certificate authority of a Secret.
func (f *fixture) setAuthority(secret *corev1.Secret, authority []byte) {
	f.Helper()
	before := secret.DeepCopy()
	secret.Data = map[string][]byte{"ca.crt": authority}
	f.Must(f.Patch(f.Context(), secret, client.MergeFrom(before)))
}
