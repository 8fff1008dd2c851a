package manager_test

import (
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// discovery is the discovery response of an extension that updates machines in place. startsLater is the patch by which
// it covers the template "later".
const (
	discovery = `{"status":"Success","handlers":[
		{"name":"can","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"CanUpdateMachineSet"}},
		{"name":"do","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"UpdateMachine"}}]}`
	startsLater = `{"spec":{"template":{"spec":{"startAfter":"1s"}}}}`
)

// discoverAnExtension waits for the discovery of an extension. An administrator grants the controller the right to read
// its certificate authority.
func (s *rightsScene) discoverAnExtension() {
	s.Helper()
	extension := runtimehooktest.New(s)
	extension.Answer("Discovery", discovery)
	extension.Answer("CanUpdateMachineSet",
		`{"status":"Success","infrastructureMachineTemplatePatch":{"patchType":"JSONMergePatch","patch":"`+
			base64.StdEncoding.EncodeToString([]byte(startsLater))+`"}}`)
	extension.Answer("UpdateMachine", `{"status":"Success","retryAfterSeconds":0}`)
	secret := &corev1.Secret{ObjectMeta: s.named("extension-ca"), Data: map[string][]byte{"ca.crt": extension.CA()}}
	s.MustCreate(secret)
	s.Must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: s.named("extension-ca"), Rules: []rbacv1.PolicyRule{
		{
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: []string{secret.Name},
			Verbs:         []string{"get"},
		},
	}}))
	s.Must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: s.named("extension-ca"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-ca"},
		Subjects: []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Namespace: manager.DefaultNamespace,
			Name:      "machine-controller",
		}},
	}))
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "ext", Annotations: map[string]string{
		runtimev1.InjectCAFromSecretAnnotation: s.Namespace + "/" + secret.Name,
	}}}
	config.Spec.ClientConfig.URL = extension.ClientConfig().URL
	s.MustCreate(config)
	machinetest.Await(s, s, config, client.ObjectKeyFromObject(config),
		func(c *runtimev1.ExtensionConfig) bool {
			return meta.IsStatusConditionTrue(c.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
		})
}
