package operator_test

import (
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
)

// configMap returns a ConfigMap of the shop.
func (s *stage) configMap(name string) *corev1.ConfigMap {
	s.t.Helper()
	var found corev1.ConfigMap
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &found))
	return &found
}

// showsNothing fails the test if the output of the operator (logs, events, statuses, record, lock, metrics) has one of
// some texts, plain or in base64.
func (s *stage) showsNothing(pods *hostpods.HostPods, texts ...string) {
	s.t.Helper()
	shown := map[string]string{}
	for _, hostProcess := range pods.Processes() {
		text, err := os.ReadFile(hostProcess.Log)
		s.must(err)
		shown["the log of "+hostProcess.Pod] = string(text)
	}
	for what, list := range map[string]client.ObjectList{
		"events": &corev1.EventList{}, "ClusterVersions": &configv1.ClusterVersionList{},
		"ClusterOperators": &configv1.ClusterOperatorList{},
		"the lock":         &coordinationv1.LeaseList{}, "the record": &corev1.ConfigMapList{},
	} {
		s.must(s.client.List(s.t.Context(), list))
		text, err := yaml.Marshal(list)
		s.must(err)
		shown[what] = string(text)
	}
	ready, err := pods.AwaitReady(s.t.Context(), 1)
	s.must(err)
	s.allow("prometheus")
	code, metrics, _ := s.scraper(net.JoinHostPort(ready[0].Address, "9099"), "prometheus").get(s.t.Context())
	if shown["the metrics"] = metrics; code != http.StatusOK {
		s.t.Errorf("metrics: %d %s", code, metrics)
	}
	for what, text := range shown {
		for line := range strings.Lines(text) {
			for _, name := range texts {
				if strings.Contains(line, name) ||
					strings.Contains(line, base64.StdEncoding.EncodeToString([]byte(name))) {
					s.t.Errorf("%s: %s", what, line)
				}
			}
		}
		if len(text) == 0 {
			s.t.Errorf("%s: nothing", what)
		}
	}
}

// quoting is an admission policy that refuses Secrets with a number in their type, and quotes their data, as webhooks
// do.
func quoting() []client.Object {
	meta := metav1.ObjectMeta{Name: "quoting"}
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create,
		admissionregistrationv1.Update}
	return []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: operations,
							Rule: admissionregistrationv1.Rule{
								APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"},
							}},
					}},
				},
				Validations: []admissionregistrationv1.Validation{{
					Expression:        "object.metadata.name != 'quoted'",
					MessageExpression: "'no ' + string(object.data.password)",
				}},
			}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "quoting",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			}},
	}
}

// TestNothingShowsASecret: the server refuses Secrets of a release, and quotes them in its message.
func TestNothingShowsASecret(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const fixed = `
-- 0000_30_shop_10_fixed.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: fixed, namespace: shop}, immutable: true, stringData: {password: pl4nted-VERSION}}
-- 0000_30_shop_20_kept.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: kept, namespace: shop}, stringData: {password: pl4nted-kept}}
`
	for _, object := range quoting() {
		s.must(s.client.Create(t.Context(), object))
	}
	probe := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "quoted", Namespace: "default"},
		Data:       map[string][]byte{"password": []byte("probe")},
	}
	s.await("the policy quotes", func() bool {
		err := s.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "cHJvYmU=")
	})
	pods := s.deploy(s.push("1.0.0", shop+fixed))
	s.until("installed", isAt("1.0.0"))
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: "shop"}}
	s.must(s.client.Patch(t.Context(), kept,
		client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"password":"pl4nted-edited"}}`))))
	s.await("it is repaired", func() bool {
		s.must(s.client.Get(t.Context(), client.ObjectKeyFromObject(kept), kept))
		return string(kept.Data["password"]) == "pl4nted-kept"
	})
	s.update(s.push("1.0.1", shop+fixed+`
-- 0000_30_quoted_10_a.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: quoted, namespace: shop}, stringData: {password: pl4nted-quoted}}
-- 0000_30_number_10_a.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: number, namespace: shop}, stringData: {password: 48151623421}}
-- 0000_30_typed_10_a.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: typed, namespace: shop}, type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: pl4nted-typed}}
`))
	s.until("no Secret can be applied", func(v *configv1.ClusterVersion) bool {
		message := find(v, "Failing").Message
		return !slices.ContainsFunc([]string{"fixed", "quoted", "number", "typed"}, func(name string) bool {
			return !strings.Contains(message, "Secret shop/"+name)
		})
	})
	s.showsNothing(pods, "pl4nted-", "48151623421")
}
