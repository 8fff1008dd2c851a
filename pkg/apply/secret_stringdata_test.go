package apply_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply"
)

// If a manifest drops a key of stringData, the key is removed from the Secret, as a key of data is.
func TestDroppedStringDataIsRemovedFromASecret(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	for _, step := range []struct {
		data, want string
		keys       []string
	}{
		{"data: {a: YQ==}, stringData: {b: b, c: c}", "created", []string{"a", "b", "c"}},
		{"data: {a: YQ==}, stringData: {b: b, c: c}", "unchanged", []string{"a", "b", "c"}},
		{"data: {b: YQ==}, stringData: {b: b}", "configured", []string{"b"}},
	} {
		release := load(t, namespace, namespace,
			"-- 0000_10_web.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: it, namespace: NS}, "+step.data+
				"}\n")
		if got := mustApply(t, release, apply.Options{}); got != step.want+" Secret" {
			t.Errorf("%s: %s", step.data, got)
		}
		secret, err := test.Client(t).CoreV1().Secrets(namespace).Get(t.Context(), "it", metav1.GetOptions{})
		must(t, err)
		if diff := cmp.Diff(step.keys, slices.Sorted(maps.Keys(secret.Data))); diff != "" ||
			string(secret.Data["b"]) != "b" {
			t.Errorf("%s: %s, b is %q", step.data, diff, secret.Data["b"])
		}
	}
}
