package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestUpdateAfterALongDrain makes a budget hold the drain before an update, and another member stop meanwhile. The
// extension, whose call restarts the member of the machine, is called when that one answers again; and in another
// update, when it has been replaced.
func TestUpdateAfterALongDrain(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	s := newClusterAPIScene(t)
	var calls [3]atomic.Int32 // calls by machine
	e := newUpdater(t)
	e.Serve("UpdateMachine", func(w http.ResponseWriter, r *http.Request) {
		var request hooksv1.UpdateMachineRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		number, after := int(request.Desired.Machine.Name[1]-'0'), 0
		if calls[number].Add(1) == 1 {
			s.kill(number)
		}
		joining, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if s.Join(joining, number) != nil {
			after = 1
		}
		_, _ = fmt.Fprintf(w, `{"status":"Success","retryAfterSeconds":%d}`, after)
	})
	awaitEnd := func(number int) {
		t.Helper()
		s.eventually("the update ends", func(context.Context) error {
			m := s.clusterAPIMachine(t, number)
			if calls := calls[number].Load(); calls == 0 || rolloutrules.IsUpdating(m) ||
				m.Annotations[requested] != "" {
				return fmt.Errorf("%d calls, annotations %q", calls, m.Annotations)
			}
			return nil
		})
	}
	if err := s.patch(t.Context(), e.Register(t, s.client, s.namespace),
		`{"spec":{"settings":{"drain":"true"}}}`); err != nil {
		t.Fatal(err)
	}
	pods := &machinetest.Fixture{Client: s.client, TB: t, Namespace: s.namespace}
	pods.RunPod(pods.NewPod("web", s.getNode(t, 1)))
	budget := pods.AddBudget("web", "web")
	s.beginUpdate(t, 1)
	s.awaitUpdating(t, 1, "draining Node "+s.node(1)+": * Pod "+s.namespace+"/web: cannot evict pod")
	s.kill(3)
	pods.MustDelete(budget)
	s.awaitUpdating(t, 1, "waiting for the etcd quorum guard to permit it: these voting members of etcd do not "+
		"answer: etcd-3 (")
	if calls := calls[1].Load(); calls > 0 {
		t.Fatalf("the extension was called %d times while a member does not answer", calls)
	}
	s.eventually("the member starts again", func(ctx context.Context) error { return s.Join(ctx, 3) })
	awaitEnd(1)
	s.awaitMembers("1 2 3")

	s.kill(3)
	s.beginUpdate(t, 2)
	s.awaitUpdating(t, 2, "waiting for the etcd quorum guard to permit it: these voting members of etcd do not "+
		"answer: etcd-3 (")
	pods.MustDelete(s.clusterAPIMachine(t, 3))
	s.createClusterAPIMachine(t, 4)
	awaitEnd(2)
	s.awaitMembers("1 2 4")
}

// beginUpdate begins an update in place, as the control plane does once the guard has permitted it.
func (s *scene) beginUpdate(t *testing.T, number int) {
	t.Helper()
	s.annotate(t, number, clusterv1.UpdateInProgressAnnotation, "")
	infrastructure := &v1alpha1.ExternalMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace,
		Name:      fmt.Sprint("m", number),
	}}
	if err := s.patch(t.Context(), infrastructure,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, clusterv1.UpdateInProgressAnnotation)); err != nil {
		t.Fatal(err)
	}
	s.annotate(t, number, runtimev1.PendingHooksAnnotation, "UpdateMachine")
}

// awaitUpdating waits until the condition Updating of a machine has a text.
func (s *scene) awaitUpdating(t *testing.T, number int, text string) {
	t.Helper()
	s.eventually(fmt.Sprintf("machine %d is updated: %s", number, text), func(context.Context) error {
		m := s.clusterAPIMachine(t, number)
		if updating := meta.FindStatusCondition(m.Status.Conditions,
			clusterv1.MachineUpdatingCondition); updating == nil || !strings.Contains(updating.Message, text) {
			return fmt.Errorf("%+v", updating)
		}
		return nil
	})
}
