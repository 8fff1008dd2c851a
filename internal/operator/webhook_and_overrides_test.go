package operator_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestUnavailableWebhook: the status reports a failing update after half a minute, and not before. When the webhook is
// deleted, the update continues.
func TestUnavailableWebhook(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	webhook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "down"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "down.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects:  ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"},
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule: admissionv1.Rule{
					APIGroups:   []string{""},
					APIVersions: []string{"v1"},
					Resources:   []string{"configmaps"},
				},
			}},
		}}}
	s.must(s.client.Create(t.Context(), webhook))
	s.update(s.push("1.0.1", shop))
	s.until("it is waited for", func(v *configv1.ClusterVersion) bool {
		failing, progressing := find(v, "Failing"), find(v, configv1.OperatorProgressing)
		return failing.Status == configv1.ConditionFalse &&
			strings.Contains(progressing.Message,
				"ConfigMap shop/settings (the control plane is reporting an internal error; ")
	})
	s.until("it fails", func(v *configv1.ClusterVersion) bool {
		failing, progressing := find(v, "Failing"), find(v, configv1.OperatorProgressing)
		return failing.Status == configv1.ConditionTrue && failing.Reason == "UpdatePayloadClusterError" &&
			strings.Contains(failing.Message, "down.example.com") &&
			progressing.Reason == failing.Reason &&
			progressing.Message == "Unable to apply 1.0.1: ConfigMap shop/settings: the control plane is reporting "+
				"an internal error"
	})
	s.must(s.client.Delete(t.Context(), webhook))
	s.until("updated", isAt("1.0.1"))
}

// TestOverridesInAPatch are a warning: the objects that they leave unmanaged are not updated.
func TestOverridesInAPatch(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	installed := s.until("installed", isAt("1.0.0"))
	patch := client.MergeFrom(installed.DeepCopy())
	installed.Spec.Overrides = []configv1.ComponentOverride{{
		Kind:      "ConfigMap",
		Namespace: "shop",
		Name:      "settings",
		Unmanaged: true,
	}}
	installed.Spec.DesiredUpdate = &configv1.Update{Image: s.push("1.0.1", shop)}
	s.must(s.client.Patch(t.Context(), installed, patch))
	updated := s.until("updated", isAt("1.0.1"))
	if got := updated.Status.History[0].AcceptedRisks; got != "ClusterVersionOverrides" {
		t.Errorf("the accepted risks are %q", got)
	}
	if got := s.of("settings"); got != "1.0.0" {
		t.Errorf("the unmanaged object is of %s", got)
	}
}
