package apply_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// gate has a ConfigMap that later levels wait for.
const gate = `
-- 0000_10_base_gate.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: gate, namespace: NS, annotations: {runlevel.dev/ready: "has(self.data) && has(self.data.open)"}}
-- 0000_20_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`

// If another client deletes an applied object while the run waits for it, the run applies the object again.
func TestObjectDeletedDuringTheRunIsAppliedAgain(t *testing.T) {
	for name, row := range map[string]struct {
		mode graph.Mode
		full bool // an earlier run has applied the same objects
		want string
	}{
		"update": {graph.Update, false,
			"created ConfigMap gate\ncreated ConfigMap gate\ncreated ConfigMap gate\ncreated ConfigMap settings"},
		"install": {graph.Install, false,
			"created ConfigMap gate\ncreated ConfigMap settings\ncreated ConfigMap gate\ncreated ConfigMap gate"},
		"it was unchanged": {graph.Update, true,
			"unchanged ConfigMap gate\ncreated ConfigMap gate\ncreated ConfigMap gate\nunchanged ConfigMap settings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			release := load(t, namespace, namespace, gate)
			if row.full {
				run(t, t.Context(), release, apply.Options{Options: updateMode, NoWait: true})
			}
			maps := test.Client(t).CoreV1().ConfigMaps(namespace)
			waits, options := 0, apply.Options{Options: inMode(row.mode), Workers: 1, ReportWaits: quickly}
			options.OnEvent = func(event apply.Event) {
				if event.Type != apply.Waiting || strings.Contains(event.Message, "deleted") {
					return
				}
				var err error
				if waits++; waits <= 2 {
					if err = maps.Delete(context.Background(), "gate", metav1.DeleteOptions{}); err != nil {
						waits--
					}
					return
				}
				_, err = maps.Patch(context.Background(), "gate", types.MergePatchType,
					[]byte(`{"data":{"open":"yes"}}`), metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) { // it was just deleted
					t.Error(err)
				}
			}
			did := run(t, t.Context(), release, options)
			if got := did.sequence(namespace); got != row.want || did.Err != nil {
				t.Errorf("%v\n%s", did.Err, got)
			}
		})
	}
}

// If a deleted object can't be applied again, the run ends, whatever else it waits for.
func TestRunEndsIfADeletedObjectIsRefused(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	may := grant(t, namespace)
	may("configmaps")
	did := runOn(t, t.Context(), as(t, namespace), load(t, namespace, namespace, gate), apply.Options{
		Options: installMode, ReportWaits: quickly, OnEvent: func(event apply.Event) {
			if event.Type == apply.Waiting && !strings.Contains(event.Message, "deleted") {
				may("services")
				_ = test.Client(t).CoreV1().ConfigMaps(namespace).Delete(context.Background(), "gate",
					metav1.DeleteOptions{})
			}
		},
	})
	if did.Changes[0].Action != object.Failed || did.Err == nil || strings.Contains(did.Err.Error(), "the time is up") {
		t.Errorf("%v\n%s", did.Err, did.actions())
	}
}
