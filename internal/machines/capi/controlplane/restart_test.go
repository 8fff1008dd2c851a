package controlplane_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// maxWrites is the most writes that a controller sends until it is killed: more than it takes to finish the creation
// of one machine and to create another one.
const maxWrites = 8

// TestKilledBetweenWrites kills the controller repeatedly, each time after another number of writes, until the rollout
// is complete: all machines exist then, no other objects remain, and at most one machine was missing at a time.
func TestKilledBetweenWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		surge      int32
		isExtended bool
		version    string // the changed version; empty for a remediation
		wantedKept int
	}{
		"replaced":         {surge: 1, version: "v1.36.1"},
		"updated in place": {isExtended: true, version: "v1.36.1", wantedKept: 3},
		"remediated":       {surge: 1, wantedKept: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !c.isExtended {
				sandboxtest.SkipUnlessThorough(t)
			}
			p := newFixture(t, 3, c.surge)
			stop := p.run()
			p.awaitSettled(3)
			stop()
			before, missed := p.names(), p.countMissed()
			if c.isExtended {
				e, _ := p.extend()
				e.Serve("UpdateMachine", p.updateNodeSlowly())
			}
			if c.version != "" {
				p.upgrade(c.version)
			} else {
				p.mark(before[0])
			}
			p.liveAndDie(cmp.Or(c.version, "v1.36.0"), func(m *clusterv1.Machine) bool {
				return c.version == "" && m.Name == before[0]
			})
			if worst := missed(); len(worst) > 1 {
				t.Errorf("machines missing at once: got %v, want at most one", worst)
			}
			if kept := slices.DeleteFunc(p.names(), func(name string) bool {
				return !slices.Contains(before, name)
			}); len(kept) != c.wantedKept {
				t.Errorf("%v were kept of %v", kept, before)
			}
			p.awaitNoLeftovers()
		})
	}
}

// liveAndDie runs the controller, and kills it, until there are three machines of a version, all available, and no
// machine must be deleted.
func (f *fixture) liveAndDie(version string, hasToGo func(*clusterv1.Machine) bool) {
	f.Helper()
	isDone := func() bool {
		f.MustGet(f.plane)
		machines := f.machines()
		for _, m := range machines {
			if m.Spec.Version != version || !rolloutrules.IsAvailable(m) || hasToGo(m) {
				return false
			}
		}
		_, isRemediating := f.plane.Annotations["controlplane.cluster.x-k8s.io/remediation-in-progress"]
		return len(machines) == 3 && !isRemediating
	}
	for life := 0; ; life++ {
		cut := sandboxtest.NewCut(1 + (life+1)%(maxWrites+1))
		stop := f.runPlane(sandboxtest.Before(stage.Sandbox(f).Config, cut.Check))
		f.Eventually("the controller is killed, or done", func() bool { return cut.Missed() != "" || isDone() })
		stop()
		if cut.Missed() == "" {
			return
		}
		f.Logf("life %d ended before %s", life, cut.Missed())
	}
}

// updateNodeSlowly returns an update in place that takes a second, in which another machine could be missed as well.
func (f *fixture) updateNodeSlowly() http.HandlerFunc {
	var begun sync.Map
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request hooksv1.UpdateMachineRequest
		_ = json.Unmarshal(body, &request)
		if _, hasBegun := begun.LoadOrStore(request.Desired.Machine.Name, true); !hasBegun {
			_, _ = io.WriteString(w, `{"status":"Success","retryAfterSeconds":1}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.updateNode(w, r)
	}
}

// countMissed watches the machines from now on. The function that it returns returns the largest set of machines that
// had joined, and were unavailable at the same time.
func (f *fixture) countMissed() func() []string {
	var mu sync.Mutex
	var worst []string
	ctx, stop := context.WithCancel(f.Context())
	f.Cleanup(stop)
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		var list clusterv1.MachineList
		if f.List(ctx, &list, client.InNamespace(f.Namespace)) != nil {
			return
		}
		var missed []string
		for i := range list.Items {
			if m := &list.Items[i]; m.Status.NodeRef.IsDefined() && !rolloutrules.IsAvailable(m) {
				missed = append(missed, m.Name)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(missed) > len(worst) {
			worst = missed
		}
	}, 20*time.Millisecond)
	return func() []string {
		stop()
		mu.Lock()
		defer mu.Unlock()
		return worst
	}
}

// awaitNoLeftovers waits until there are only the objects to which machines refer.
func (f *fixture) awaitNoLeftovers() {
	f.Helper()
	f.Eventually("nothing is left over", func() bool {
		var machines infrav1.KwokMachineList
		var configs infrav1.KwokConfigList
		f.MustList(&machines)
		f.MustList(&configs)
		used := f.machines()
		return len(machines.Items) == len(used) && len(configs.Items) == len(used) &&
			!slices.ContainsFunc(machines.Items, func(m infrav1.KwokMachine) bool { return used[m.Name] == nil }) &&
			!slices.ContainsFunc(configs.Items, func(c infrav1.KwokConfig) bool { return used[c.Name] == nil })
	})
}
