package controlplane

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

// A PlaneJudgement is what the controller concludes from a control plane and its machines. Previews are made of it, so
// that they differ from the controller in nothing.
type PlaneJudgement struct{ s *Snapshot }

// Judge returns what the controller concludes from a control plane, and the Clusters and Machines of its namespace. It
// fails if no Cluster has the control plane. SetObjects is to be called for each member.
func Judge(plane *v1alpha1.RunlevelControlPlane, clusters []*clusterv1.Cluster, machines []*clusterv1.Machine,
	now time.Time) (*PlaneJudgement, error) {
	s := newSnapshot(plane, now)
	at := slices.IndexFunc(clusters, func(c *clusterv1.Cluster) bool { return hasPlane(c, plane) })
	if at < 0 {
		return nil, errors.New(WithoutCluster(plane))
	}
	s.cluster = clusters[at]
	for _, m := range machines {
		s.add(m)
	}
	return &PlaneJudgement{s}, nil
}

// Members returns the Machines of the control plane, the oldest first.
func (j *PlaneJudgement) Members() []*clusterv1.Machine { return j.s.owned() }

// SetObjects sets the objects to which a machine refers.
func (j *PlaneJudgement) SetObjects(m *clusterv1.Machine, objects MachineObjects) {
	j.s.setObjects(m, objects)
}

// Objects returns the objects to which a machine refers.
func (j *PlaneJudgement) Objects(m *clusterv1.Machine) MachineObjects { return j.s.objects[m.Name] }

// Machines returns what the next step depends on of the machines, the oldest first.
func (j *PlaneJudgement) Machines() []Machine { return j.s.facts() }

// IsPaused reports whether nothing must be changed.
func (j *PlaneJudgement) IsPaused() bool { return j.s.isPaused() }

// Limits returns how many machines are wanted, and how many more there may be during a rollout.
func (j *PlaneJudgement) Limits() (wanted, surge int) { return j.s.wanted(), j.s.surge() }

// NextStep returns the next step for machines, as if the control plane were not paused.
func (j *PlaneJudgement) NextStep(machines []Machine) Step {
	return j.s.nextStep(machines)
}

// FailureDomain returns the failure domain of a new machine beside others; empty if the cluster has none.
func (j *PlaneJudgement) FailureDomain(machines []Machine) string {
	return failureDomainFor(j.s.domains(), machines)
}

// RuledOut returns why a machine can't be updated in place, whatever an extension answers; empty if it has to be asked.
func (j *PlaneJudgement) RuledOut(m *clusterv1.Machine) string {
	return ruledOut(j.s.template(m), m, j.s.objects[m.Name])
}

// Request returns the question to an extension whether a machine can be updated in place. Infrastructure and bootstrap
// are as they are to be.
func (j *PlaneJudgement) Request(m *clusterv1.Machine, infrastructure,
	bootstrap *unstructured.Unstructured) *hooksv1.CanUpdateMachineRequest {
	return newRequest(j.s.template(m), m, j.s.objects[m.Name], infrastructure, bootstrap)
}
