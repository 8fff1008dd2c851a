package manager_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

// A difference is an action whose result differs between Machines of the two APIs.
type difference struct {
	name                  string
	do                    func(*apiSide)
	seen                  func(*apiSide) string
	openshift, clusterAPI string
}

// differences are documented for users who have Machines of both APIs.
var differences = []difference{
	{
		"a machine excluded from draining, with a pre-drain hook", (*apiSide).excludeHeld, (*apiSide).heldBy,
		"pre-terminate hooks", "pre-drain hooks",
	},
	{
		"a pre-drain hook that comes after the drain", (*apiSide).hookAfterDrain, (*apiSide).heldBy,
		"pre-terminate hooks", "pre-drain hooks",
	},
	{
		"a pre-terminate hook that comes while the infrastructure ends", (*apiSide).hookWhileEnding, (*apiSide).heldBy,
		"nothing: it is deleted", "pre-terminate hooks",
	},
	{
		"a pod that comes when the drain is complete", (*apiSide).podAfterDrain, (*apiSide).fateOfPod,
		"it runs", "it is evicted",
	},
	{
		"a set, while a hook holds its machine", (*apiSide).deleteOfSet, (*apiSide).machinesOfSet,
		"machines: 2", "machines: 1",
	},
	{
		"infrastructure", (*apiSide).start, (*apiSide).ownerOfInfrastructure,
		"it names its Machine in an annotation", "it has its Machine as controller",
	},
}

// TestWhereTheAPIsDiffer has both APIs in one cluster, and does the same with the machines of each.
func TestWhereTheAPIsDiffer(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newScene(t)
	s.manage(manager.OpenShift, manager.ClusterAPI)
	s.makeCluster()
	var sides []*apiSide
	for i, d := range differences {
		sides = append(sides, s.bothSides(i, d)...)
	}
	t.Run("each", func(t *testing.T) {
		for _, side := range sides {
			t.Run(side.title(), func(t *testing.T) {
				t.Parallel()
				side := side.in(t)
				side.difference.do(side)
				side.await(side.mismatch)
			})
		}
	})
	if t.Failed() {
		return
	}
	// by the end of their deletions, every expected change has happened
	for _, last := range s.bothSides(len(differences), difference{}) {
		last.start()
		last.deleteIt()
		last.scene.awaitGone(last.name)
	}
	for _, side := range sides {
		if mismatch := side.mismatch(); mismatch != "" {
			t.Errorf("%s, after all: %s", side.title(), mismatch)
		}
	}
	s.checkLateHooksAreRefused(sides)
}

// bothSides returns a side of each API for a difference.
func (s *scene) bothSides(number int, d difference) []*apiSide {
	openshift := crowdMember{name: fmt.Sprintf("openshift-%d", number)}
	clusterAPI := crowdMember{name: fmt.Sprintf("cluster-api-%d", number), isClusterAPI: true}
	return []*apiSide{
		{scene: s, crowdMember: &openshift, difference: d, want: d.openshift},
		{scene: s, crowdMember: &clusterAPI, difference: d, want: d.clusterAPI},
	}
}

// checkLateHooksAreRefused installs the admission policies of the payload: one refuses a new pre-drain hook on
// an OpenShift Machine being deleted. Cluster API allows it.
func (s *scene) checkLateHooksAreRefused(sides []*apiSide) {
	s.t.Helper()
	for _, object := range manifests.Objects() {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			s.must(s.Create(s.t.Context(), object))
		}
	}
	for _, side := range sides {
		machine := side.machine()
		if err := s.Get(s.t.Context(), keyOf(side.name), machine); err != nil {
			s.must(client.IgnoreNotFound(err))
			continue
		}
		if machine.GetDeletionTimestamp() == nil {
			continue
		}
		add := func() error { return side.tryHook("preDrain", "TooLate", client.DryRunAll) }
		if side.isClusterAPI {
			s.must(add())
			continue
		}
		s.await(func() string { // the API server takes a while to know a policy
			err := add()
			isRefused := err != nil &&
				strings.Contains(err.Error(), "pre-drain hooks are immutable when machine is marked for deletion")
			return unless(isRefused, "a late hook of %s: %v", side.name, err)
		})
	}
}
