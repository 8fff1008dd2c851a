package apply_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply"
)

// A key that is dropped from the stringData of a Secret leaves it, as one of its data does.
func TestATextThatIsDroppedLeavesASecret(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	for _, step := range []struct {
		says, want string
		keys       []string
	}{
		{"data: {a: YQ==}, stringData: {b: b, c: c}", "created", []string{"a", "b", "c"}},
		{"data: {a: YQ==}, stringData: {b: b, c: c}", "unchanged", []string{"a", "b", "c"}},
		{"data: {b: YQ==}, stringData: {b: b}", "configured", []string{"b"}},
	} {
		release := load(t, namespace, namespace,
			"-- 0000_10_web.yaml --\n{apiVersion: v1, kind: Secret, metadata: {name: it, namespace: NS}, "+step.says+
				"}\n")
		if got := mustApply(t, release, apply.Options{}); got != step.want+" Secret" {
			t.Errorf("%s: %s", step.says, got)
		}
		secret, err := test.Client(t).CoreV1().Secrets(namespace).Get(t.Context(), "it", metav1.GetOptions{})
		must(t, err)
		if diff := cmp.Diff(step.keys, slices.Sorted(maps.Keys(secret.Data))); diff != "" ||
			string(secret.Data["b"]) != "b" {
			t.Errorf("%s: %s, b is %q", step.says, diff, secret.Data["b"])
		}
	}
}
