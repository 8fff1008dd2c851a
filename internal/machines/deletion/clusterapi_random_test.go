package deletion_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// TestRandomDeletionsOfClusterAPI does as TestRandomDeletions, in Cluster API's dialect.
func TestRandomDeletionsOfClusterAPI(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := randomDeletion{T: t, world: newWorld(""), random: rand.New(rand.NewPCG(seed, 27))}
			r.begin()
			r.useClusterAPI()
			r.beginClusterAPI()
			for i := range 260 {
				switch {
				case i < 60:
					r.disturb()
					r.disturbClusterAPI()
				case i == 60:
					r.heal()
					r.capi.attached, r.capi.refusesNode = nil, false
				}
				r.checkClusterAPI()
				if r.released {
					return
				}
			}
			t.Fatalf("it does not end: %+v", r.snapshot())
		})
	}
}

func (r *randomDeletion) beginClusterAPI() {
	r.capi.isNodeKept = r.capi.isNodeKept || r.chance(8)
	if r.chance(2) {
		r.capi.bootstrap = deletion.Infrastructure{Exists: true, Name: "KubeadmConfig"}
	}
	for _, stage := range []deletion.DeletionStage{deletion.Draining, deletion.DetachingVolumes, deletion.RemovingNode} {
		r.capi.timeouts[stage] = time.Duration(max(0, r.random.IntN(120)-60)) * time.Second
	}
	r.capi.volumes.IsExcluded = r.chance(6)
}

func (r *randomDeletion) disturbClusterAPI() {
	switch r.random.IntN(8) {
	case 0:
		r.capi.attached = []string{"disk"}
	case 1, 2:
		r.capi.attached = nil
	case 3:
		r.capi.refusesNode = r.chance(2)
	case 4:
		r.capi.isNodeKept = r.capi.isNodeKept || r.chance(10)
	}
}

// checkClusterAPI does a step, and checks what must be true of each.
func (r *randomDeletion) checkClusterAPI() {
	r.Helper()
	before := r.snapshot()
	facts := before.ClusterAPI
	hasBegunTerminate := !facts.Began[deletion.BeforeTerminate].IsZero()
	isExpired := func(stage deletion.DeletionStage) bool {
		began, timeout := facts.Began[stage], facts.Timeouts[stage]
		return timeout > 0 && !began.IsZero() && facts.Now.Sub(began) >= timeout
	}
	infrastructure := r.infrastructure
	step := r.next()
	complain := func(words string) { r.Errorf("%s: %+v of %+v", words, step, before) }
	if len(before.PreDrain) > 0 && !facts.IsNodeKept && step.Stage != deletion.BeforeDrain {
		complain("a pre-drain hook holds nothing")
	}
	if step.Stage == deletion.Draining || step.Stage == deletion.DetachingVolumes {
		if facts.IsNodeKept || hasBegunTerminate || !infrastructure.exists || infrastructure.isDeleting {
			complain("the node is touched that is to be left alone")
		}
		if isExpired(step.Stage) {
			complain("a stage goes on that has timed out")
		}
	}
	isNodeDone := facts.IsNodeKept || hasBegunTerminate || infrastructure.isDeleting || !infrastructure.exists
	switch step.Action {
	case deletion.Cordon, deletion.Evict:
		if before.IsExcluded || facts.Began[deletion.Draining].IsZero() {
			complain("drained though it is excluded, or before it was recorded")
		}
	case deletion.DeleteInfrastructure:
		if len(before.PreTerminate) > 0 {
			complain("infrastructure is deleted in spite of a hook")
		}
		if !isNodeDone && !before.Drain.IsDone && !before.IsExcluded && !isExpired(deletion.Draining) {
			complain("infrastructure is deleted before the drain is over")
		}
		if !isNodeDone && !facts.Volumes.IsDone && !facts.Volumes.IsExcluded && !isExpired(deletion.DetachingVolumes) {
			complain("infrastructure is deleted while volumes are attached")
		}
	case deletion.DeleteBootstrap, deletion.DeleteNode, deletion.Release:
		if before.Infrastructure.Exists {
			complain("the end comes before the infrastructure is gone")
		}
		if step.Action == deletion.DeleteNode && facts.IsNodeKept {
			complain("a node is deleted that is to be kept")
		}
		if step.Action == deletion.Release && !facts.IsNodeKept && before.Node.Name != "" && !before.Node.IsGone && !isExpired(deletion.RemovingNode) {
			complain("a node is left behind")
		}
	case deletion.Wait:
		if step.Reason == "" || step.Message == "" {
			complain("a wait without a reason")
		}
		r.advance(max(step.After, time.Second))
	}
}
