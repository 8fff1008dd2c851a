package apply_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

const migration = `
-- 0000_10_shop_50_job.yaml --
{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: NS, ANNOTATIONS},
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: registry.example/VALUE}]}}}}
`

// A completed Job that was deleted is not run again, unless its manifest has changed.
func TestJobThatHasEndedIsNotRunAgain(t *testing.T) {
	for name, annotations := range map[string]string{
		"by default": "labels: {}", "create-only": `annotations: {release.openshift.io/create-only: "true"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			files := strings.NewReplacer("ANNOTATIONS", annotations, "VALUE", "old").Replace(migration)
			applied := func(files string, mode graph.Mode) string {
				did := run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{Options: inMode(mode)})
				if did.Err != nil {
					t.Fatal(did.Err)
				}
				return strings.ReplaceAll(did.actions(), namespace, "NS") + did.Changes[0].Message
			}
			if diff := cmp.Diff("created Job NS/migrate\n", applied(files, graph.Update)); diff != "" {
				t.Error(diff)
			}
			tidy(t, namespace)
			want := "kept Job NS/migrate\nit has already finished, and does not run again"
			for _, mode := range []graph.Mode{graph.Reconcile, graph.Update, graph.Install} {
				if diff := cmp.Diff(want, applied(files, mode)); diff != "" {
					t.Errorf("%s: %s", mode, diff)
				}
			}
			if diff := cmp.Diff("created Job NS/migrate\n",
				applied(strings.ReplaceAll(files, "old", "new"), graph.Reconcile)); diff != "" {
				t.Error(diff)
			}
			tidy(t, namespace)
			if diff := cmp.Diff("created Job NS/migrate\n", applied(files, graph.Update)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// tidy deletes the Job, as the controller does when ttlSecondsAfterFinished has passed.
func tidy(t *testing.T, namespace string) {
	t.Helper()
	jobs := test.Client(t).BatchV1().Jobs(namespace)
	background := metav1.DeletePropagationBackground
	if err := jobs.Delete(t.Context(), "migrate", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the Job is not deleted", func(ctx context.Context) bool {
		_, err := jobs.Get(ctx, "migrate", metav1.GetOptions{})
		return err != nil
	})
}
