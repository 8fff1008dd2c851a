package runtimehooktest

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Register creates an ExtensionConfig with the namespace's name, for that namespace alone. It is deleted at the end of
// the test.
func (e *Extension) Register(t testing.TB, c client.Client, namespace string) *runtimev1.ExtensionConfig {
	t.Helper()
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	config.Spec.ClientConfig = e.ClientConfig()
	config.Spec.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
	}
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), config) })
	return config
}

// Discover writes the status of an ExtensionConfig as its controller does once it has discovered the hooks.
func Discover(t testing.TB, c client.Client, config *runtimev1.ExtensionConfig, policy runtimev1.FailurePolicy,
	hooks ...string) {
	t.Helper()
	before := config.DeepCopy()
	for _, hook := range hooks {
		config.Status.Handlers = append(config.Status.Handlers, runtimev1.ExtensionHandler{
			Name: strings.ToLower(hook) + "." + config.Name, TimeoutSeconds: 10, FailurePolicy: policy,
			RequestHook: runtimev1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: hook},
		})
	}
	config.Status.Conditions = []metav1.Condition{{
		Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: metav1.ConditionTrue, Reason: "Discovered",
		ObservedGeneration: config.Generation, LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Patch(t.Context(), config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
