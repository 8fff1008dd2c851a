package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// The annotations of a remediation, with Cluster API's names: on the control plane until the replacement is created,
// and on the replacement.
const (
	remediationInProgressAnnotation = "controlplane.cluster.x-k8s.io/remediation-in-progress"
	remediationForAnnotation        = "controlplane.cluster.x-k8s.io/remediation-for"
)

// defaultMinHealthy is Cluster API's.
const defaultMinHealthy = time.Hour

// remediationData is the value of the annotations.
type remediationData struct {
	Machine    string      `json:"machine"`
	Timestamp  metav1.Time `json:"timestamp"`
	RetryCount int32       `json:"retryCount"`
}

// readRemediation reads the annotation of an object; it returns nil if there is none, or if it can't be read.
func readRemediation(object metav1.Object, key string) *remediationData {
	value, ok := object.GetAnnotations()[key]
	data := &remediationData{}
	if !ok || json.Unmarshal([]byte(value), data) != nil {
		return nil
	}
	return data
}

// A remedy is the remediation of one machine of a control plane.
type remedy struct {
	owners.Remedy
	data *remediationData // data for a machine that has to be deleted; nil otherwise
}

// machineToReplace returns the name of the machine that must be deleted; empty if there is none.
func (r *remedy) machineToReplace() string {
	if r == nil || r.data == nil {
		return ""
	}
	return r.Machine.Name
}

// nextRemedy returns the next remedy of one machine: it removes the condition of a recovered machine, replaces the
// worst machine that can be replaced, or reports why a machine can't be replaced now. It returns nil if nothing has to
// be written.
//
// The worst machines are those that a user has annotated, then those that have not joined, then the oldest.
func (s *Snapshot) nextRemedy() *remedy {
	var marked []*clusterv1.Machine
	for _, m := range s.Members() {
		switch {
		case m.DeletionTimestamp != nil || !metav1.IsControlledBy(m, s.plane):
		case rolloutrules.IsMarked(m):
			marked = append(marked, m)
		case owners.IsRecovered(m):
			return &remedy{Remedy: owners.NewRemedy(m, "", "")}
		}
	}
	slices.SortStableFunc(marked, func(a, b *clusterv1.Machine) int { return remediationRank(a) - remediationRank(b) })
	var report *remedy
	for _, m := range marked {
		data, reason, message := s.remediation(m)
		next := &remedy{Remedy: owners.NewRemedy(m, reason, message), data: data}
		if next.IsDue {
			return next
		}
		if report == nil && !next.IsEmpty() {
			report = next
		}
	}
	return report
}

func remediationRank(m *clusterv1.Machine) int {
	switch {
	case metav1.HasAnnotation(m.ObjectMeta, clusterv1.RemediateMachineAnnotation):
		return 0
	case !m.Status.NodeRef.IsDefined():
		return 1
	}
	return 2
}

// remediation returns the data of the replacement of an unhealthy machine, or nil and the reason why it is not replaced
// now: the limits of Cluster API, or other machines that start, are deleted, or would be missing.
func (s *Snapshot) remediation(m *clusterv1.Machine) (data *remediationData, reason, message string) {
	data, reason, message = s.withinLimits(m)
	if data == nil {
		return nil, reason, message
	}
	if begun := readRemediation(s.plane, remediationInProgressAnnotation); begun != nil && begun.Machine != m.Name &&
		countStaying(s.Machines()) < s.wanted() {
		return nil, owners.RemediationDeferred, "RunlevelControlPlane waiting for the replacement of another machine"
	}
	joined, healthy := 0, 0
	for _, other := range s.Machines() {
		switch {
		case other.IsDeleting && !isSuccessor(m, s.machines[other.Name]):
			return nil, owners.RemediationDeferred,
				"RunlevelControlPlane waiting for control plane Machine deletion to complete before triggering " +
					"remediation"
		case other.HasNode:
			joined++
		case other.Name != m.Name && !other.IsDeleting && s.isInitialized():
			return nil, owners.RemediationDeferred,
				"RunlevelControlPlane waiting for control plane Machine provisioning to complete before triggering " +
					"remediation"
		}
		if other.Name != m.Name && other.Problem == "" {
			healthy++
		}
	}
	hasJoined := m.Status.NodeRef.IsDefined()
	switch {
	case s.isInitialized() && len(s.machines) <= 1:
		return nil, owners.RemediationRefused,
			"RunlevelControlPlane can't remediate if current replicas are less or equal to 1"
	case hasJoined && healthy < (joined-1)/2+1:
		return nil, owners.RemediationRefused,
			"RunlevelControlPlane can't remediate this Machine because this could cost etcd its quorum"
	}
	return data, owners.RemediationDeleting, "Machine is deleting"
}

// isSuccessor reports whether a machine was created after the beginning of another one's deletion, which a hook holds
// until the replacement is ready. If the machine fails, it must be replaced so that the deletion ends.
func isSuccessor(m, held *clusterv1.Machine) bool {
	return rolloutrules.IsHeld(held) && !m.CreationTimestamp.Before(held.DeletionTimestamp)
}

// withinLimits returns the data of a remediation, or nil and why the limits do not allow one now.
func (s *Snapshot) withinLimits(m *clusterv1.Machine) (data *remediationData, reason, message string) {
	data = &remediationData{Machine: m.Name, Timestamp: metav1.NewTime(s.time.UTC().Truncate(time.Second))}
	last := readRemediation(m, remediationForAnnotation)
	if last == nil {
		return data, "", ""
	}
	limits := s.plane.Spec.Remediation
	period := time.Duration(ptr.Deref(limits.RetryPeriodSeconds, 0)) * time.Second
	minHealthy := time.Duration(
		ptr.Deref(limits.MinHealthyPeriodSeconds, int32(defaultMinHealthy.Seconds())),
	) * time.Second
	passed := s.time.Sub(last.Timestamp.Time)
	switch {
	case passed >= max(period, minHealthy): // the replacement was healthy long enough: this is not a retry
		return data, "", ""
	case passed < period:
		s.lookAgain(period - passed)
		return nil, owners.RemediationDeferred,
			fmt.Sprintf("RunlevelControlPlane can't remediate this machine because the operation already failed in "+
				"the latest %s (RetryPeriod)", period)
	case limits.MaxRetry != nil && last.RetryCount >= *limits.MaxRetry:
		return nil, owners.RemediationRefused,
			fmt.Sprintf("RunlevelControlPlane can't remediate this machine because the operation already failed %d "+
				"times (MaxRetry)", *limits.MaxRetry)
	}
	data.RetryCount = last.RetryCount + 1
	return data, "", ""
}

func (s *Snapshot) isInitialized() bool {
	return ptr.Deref(s.plane.Status.Initialization.ControlPlaneInitialized, false)
}

// remediate writes the condition of an unhealthy machine, and deletes the machine if it is due. The control plane gets
// the data for the replacement first.
func (r *Reconciler) remediate(ctx context.Context, s *Snapshot) error {
	if name := s.remedy.machineToReplace(); name != "" {
		if err := r.tryReplacement(ctx, s, name); err != nil {
			return err
		}
		if isSame, err := r.readAgain(ctx, s); err != nil || !isSame {
			return err
		}
	}
	due := s.remedy
	if due.data != nil {
		value, err := json.Marshal(due.data)
		if err != nil {
			return err
		}
		noted := s.plane.DeepCopy()
		metav1.SetMetaDataAnnotation(&noted.ObjectMeta, remediationInProgressAnnotation, string(value))
		if err := patch.WithLock(ctx, r.Client, noted, s.plane); err != nil {
			return fmt.Errorf("record the remediation of Machine %s: %w", due.Machine.Name, err)
		}
		s.plane = noted
	}
	if err := due.WriteCondition(ctx, r.Client); err != nil || due.data == nil {
		return err
	}
	s.machines[due.Machine.Name] = due.Changed
	return r.remove(ctx, s, due.Machine.Name)
}

// isRemediationOver reports whether the data on the control plane is obsolete: the replacement exists, or the machine
// has recovered before its deletion, or fewer machines are wanted.
func (s *Snapshot) isRemediationOver() bool {
	data := readRemediation(s.plane, remediationInProgressAnnotation)
	if data == nil {
		return metav1.HasAnnotation(s.plane.ObjectMeta, remediationInProgressAnnotation)
	}
	m := s.machines[data.Machine]
	if m != nil && m.DeletionTimestamp == nil && !rolloutrules.IsMarked(m) || m == nil && s.isComplete() {
		return true
	}
	return slices.ContainsFunc(s.Members(), func(m *clusterv1.Machine) bool {
		replaced := readRemediation(m, remediationForAnnotation)
		return replaced != nil && replaced.Machine == data.Machine
	})
}

// isComplete reports whether all machines exist.
func (s *Snapshot) isComplete() bool {
	return len(s.machines) >= s.wanted() && !slices.ContainsFunc(s.Machines(), Machine.IsOutdated)
}
