package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/remediation"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A Snapshot is the observed state of a control plane, and the conclusions from it. The Machines may belong to the
// cache: callers must not change them.
type Snapshot struct {
	plane    *v1alpha1.RunlevelControlPlane
	cluster  *clusterv1.Cluster            // nil if none refers to the control plane
	machines map[string]*clusterv1.Machine // the machines of the control plane, by name
	workers  int                           // other machines of the cluster
	objects  map[string]MachineObjects     // objects of the machines, by the machines' names
	outdated map[string][]string           // the reasons why machines are outdated, by their names
	unread   error                         // the reason why the objects of some machines could not be read
	adopt    []string
	remedy   *remedy // remedy for an unhealthy machine; nil if there is none
	step     Step
	// kubeconfig is the reason why no kubeconfig exists; empty if one exists.
	kubeconfig kubeconfigProblem
	time       time.Time
	after      time.Duration // time until the next reconciliation; 0 if only a change causes it
}

// read reads a control plane after its machines. It returns nil if the control plane does not exist.
func (r *Reconciler) read(ctx context.Context, reader client.Reader, key types.NamespacedName) (*Snapshot, error) {
	var list clusterv1.MachineList
	if err := reader.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	s := newSnapshot(&v1alpha1.RunlevelControlPlane{}, r.now())
	if err := reader.Get(ctx, key, s.plane); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var err error
	if s.cluster, err = clusterOf(ctx, reader, s.plane); err != nil || s.clusterName() == "" {
		return s, err
	}
	for i := range list.Items {
		s.add(&list.Items[i])
	}
	if s.plane.DeletionTimestamp == nil {
		r.readObjects(ctx, s)
	}
	s.decide()
	return s, nil
}

// readObjects reads the objects of the machines. While some objects can't be read, only missing machines are created.
func (r *Reconciler) readObjects(ctx context.Context, s *Snapshot) {
	for _, m := range s.Members() {
		infrastructure, err := r.objectOf(ctx, m, m.Spec.InfrastructureRef)
		bootstrap, bootstrapErr := r.objectOf(ctx, m, m.Spec.Bootstrap.ConfigRef)
		if err = errors.Join(err, bootstrapErr); err != nil {
			s.unread = errors.Join(s.unread, fmt.Errorf("read the objects of Machine %s: %w", m.Name, err))
			continue
		}
		s.SetObjects(m, MachineObjects{infrastructure, bootstrap})
	}
}

// objectOf reads an object of a machine. It returns nil if the object does not exist: the controller of Machines
// reports that.
func (r *Reconciler) objectOf(ctx context.Context, m *clusterv1.Machine,
	ref contract.Reference,
) (*contract.Object, error) {
	if !ref.IsDefined() {
		return nil, nil
	}
	object, err := r.machines.References.Get(ctx, ref, m.Namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// Judge returns a snapshot of a control plane, and of the Clusters and Machines of its namespace, for a preview. It
// fails if no Cluster has the control plane. The caller must call SetObjects for each member.
func Judge(plane *v1alpha1.RunlevelControlPlane, clusters []*clusterv1.Cluster, machines []*clusterv1.Machine,
	now time.Time) (*Snapshot, error) {
	s := newSnapshot(plane, now)
	i := slices.IndexFunc(clusters, func(c *clusterv1.Cluster) bool { return hasPlane(c, plane) })
	if i < 0 {
		return nil, errors.New(WithoutCluster(plane))
	}
	s.cluster = clusters[i]
	for _, m := range machines {
		s.add(m)
	}
	return s, nil
}

func newSnapshot(plane *v1alpha1.RunlevelControlPlane, now time.Time) *Snapshot {
	return &Snapshot{
		plane: plane, time: now, machines: map[string]*clusterv1.Machine{},
		objects: map[string]MachineObjects{}, outdated: map[string][]string{},
	}
}

// Objects returns the objects to which a machine refers.
func (s *Snapshot) Objects(m *clusterv1.Machine) MachineObjects { return s.objects[m.Name] }

// SetObjects sets the objects to which a machine refers, and whether the machine is up to date.
func (s *Snapshot) SetObjects(m *clusterv1.Machine, objects MachineObjects) {
	s.objects[m.Name], s.outdated[m.Name] = objects, outdatedBy(s.plane, m, objects, s.time)
}

// clusterName returns the name of the Cluster. If the control plane outlives its Cluster during its deletion, it is the
// name of the last one. It is empty if there is none.
func (s *Snapshot) clusterName() string {
	switch {
	case s.cluster != nil:
		return s.cluster.Name
	case s.plane.DeletionTimestamp != nil:
		return s.plane.Labels[clusterv1.ClusterNameLabel]
	}
	return ""
}

// clusterOf returns the Cluster of a control plane; nil if there is none.
func clusterOf(ctx context.Context, reader client.Reader,
	plane *v1alpha1.RunlevelControlPlane) (*clusterv1.Cluster, error) {
	var clusters clusterv1.ClusterList
	if err := reader.List(ctx, &clusters, client.InNamespace(plane.Namespace)); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	for i := range clusters.Items {
		if hasPlane(&clusters.Items[i], plane) {
			return &clusters.Items[i], nil
		}
	}
	return nil, nil
}

// hasPlane reports whether a control plane belongs to a Cluster: the Cluster refers to it, and no other Cluster has
// claimed it and its machines before.
func hasPlane(cluster *clusterv1.Cluster, plane *v1alpha1.RunlevelControlPlane) bool {
	claimed := plane.Labels[clusterv1.ClusterNameLabel]
	return cluster.Spec.ControlPlaneRef == refTo(plane.Name) && (claimed == "" || claimed == cluster.Name)
}

func refTo(name string) contract.Reference {
	return contract.Reference{
		APIGroup: v1alpha1.GroupVersion.Group,
		Kind:     "RunlevelControlPlane",
		Name:     name,
	}
}

// add adds a machine of the cluster: one of the control plane, or a worker. An orphan of the control plane is adopted,
// unless it is being deleted.
func (s *Snapshot) add(m *clusterv1.Machine) {
	if m.Spec.ClusterName != s.clusterName() {
		return
	}
	_, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
	switch owner := replicas.OwnerOf(m, s.plane.UID); {
	case owner == replicas.Ours:
		s.machines[m.Name] = m
	case !isControlPlane:
		s.workers++
	case owner == replicas.Orphan && m.DeletionTimestamp == nil && s.plane.DeletionTimestamp == nil:
		s.machines[m.Name] = m
		s.adopt = append(s.adopt, m.Name)
	}
}

// decide computes the remedy and the next step.
func (s *Snapshot) decide() {
	if after := s.plane.Spec.Rollout.After; after.After(s.time) {
		s.lookAgain(after.Sub(s.time))
	}
	if s.plane.DeletionTimestamp != nil || s.IsPaused() {
		return
	}
	s.remedy, s.step = s.nextRemedy(), s.NextStep(s.Machines())
	if s.unread != nil && s.step.Action != CreateMachine {
		s.step = Step{}
	}
}

// NextStep returns the next step for machines, as if the control plane were not paused. There is none before the
// cluster has its infrastructure.
func (s *Snapshot) NextStep(machines []Machine) Step {
	infrastructure := s.cluster.Spec.InfrastructureRef
	if infrastructure.IsDefined() && hasCore(s.cluster) &&
		!ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return waitFor(fmt.Sprintf("Cluster %s waits for its infrastructure %s %s", s.cluster.Name, infrastructure.Kind,
			infrastructure.Name))
	}
	wanted, surge := s.Limits()
	return nextStep(wanted, surge, machines)
}

// lookAgain requests another reconciliation after a while, unless an earlier one is requested.
func (s *Snapshot) lookAgain(after time.Duration) { s.after = remediation.Earliest(s.after, after) }

// hasCore reports whether Cluster API's controller of Clusters works on a Cluster: only it adds this finalizer.
func hasCore(cluster *clusterv1.Cluster) bool {
	return slices.Contains(cluster.Finalizers, clusterv1.ClusterFinalizer)
}

func (s *Snapshot) wanted() int { return int(ptr.Deref(s.plane.Spec.Replicas, 1)) }

// Limits returns how many machines are wanted, and how many more there may be during a rollout.
func (s *Snapshot) Limits() (wanted, surge int) {
	return s.wanted(), int(ptr.Deref(s.plane.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, 1))
}

// IsPaused reports whether nothing must be changed.
func (s *Snapshot) IsPaused() bool { return contract.IsPaused(s.plane, s.cluster) }

// hasWork reports whether something must be written, which requires a read from the API server first.
func (s *Snapshot) hasWork() bool {
	return s.plane.DeletionTimestamp != nil || len(s.adopt) > 0 || s.step.Action != "" || s.remedy != nil ||
		s.isRemediationOver()
}

// Members returns the machines, the oldest first.
func (s *Snapshot) Members() []*clusterv1.Machine {
	var owned []*clusterv1.Machine
	for _, m := range s.machines {
		owned = append(owned, m)
	}
	slices.SortFunc(owned, func(a, b *clusterv1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return owned
}

// Machines returns the facts about the machines from which the next step is decided, the oldest machine first.
func (s *Snapshot) Machines() []Machine {
	var all []Machine
	for _, m := range s.Members() {
		_, isChosen := m.Annotations[clusterv1.DeleteMachineAnnotation]
		isMarked, problem := rolloutrules.IsUpdating(m), problemOf(m)
		// An update is over once its end is in the status, too: until then its machine would seem broken.
		isUpdating := isMarked || meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpdatingCondition)
		all = append(all, Machine{
			Name: m.Name, FailureDomain: m.Spec.FailureDomain, Created: m.CreationTimestamp.Time,
			Outdated: s.outdated[m.Name],
			IsReplaced: isExpired(s.plane, m, s.time) || rolloutrules.IsMarked(m) ||
				metav1.HasAnnotation(m.ObjectMeta, clusterv1.RemediateMachineAnnotation),
			IsDeleting: m.DeletionTimestamp != nil, IsHeld: rolloutrules.IsHeld(m),
			IsUpdating: isUpdating, IsTriggered: !isMarked || machinetemplate.IsTriggered(m), IsChosen: isChosen,
			HasNode: m.Status.NodeRef.IsDefined(), Problem: problem,
			IsBroken: problem != "" && !isUpdating &&
				!meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineReadyCondition),
		})
	}
	return all
}

// problemOf returns why a machine is not available, or the stage of its deletion or update; empty if it is available.
func problemOf(m *clusterv1.Machine) string {
	message := func(kind string) string {
		found := ptr.Deref(meta.FindStatusCondition(m.Status.Conditions, kind), metav1.Condition{})
		return strings.ReplaceAll(cmp.Or(found.Message, found.Reason), "\n", " ")
	}
	switch {
	case m.DeletionTimestamp != nil:
		return cmp.Or(message(clusterv1.MachineDeletingCondition), "Deletion started")
	case rolloutrules.IsUpdating(m):
		return cmp.Or(message(clusterv1.MachineUpdatingCondition), "In-place update in progress")
	case !m.Status.NodeRef.IsDefined():
		return cmp.Or(message(clusterv1.MachineReadyCondition), "it has no Node yet")
	case rolloutrules.IsAvailable(m):
		return ""
	}
	return cmp.Or(message(clusterv1.MachineReadyCondition), message(clusterv1.MachineAvailableCondition),
		"it is not available yet")
}

// template returns the template of the machines. Annotations of a machine that the control plane has set are kept.
func (s *Snapshot) template(m *clusterv1.Machine) machinetemplate.Template {
	wanted := s.plane.Spec.MachineTemplate
	annotations := wanted.ObjectMeta.Annotations
	if value, ok := m.Annotations[remediationForAnnotation]; ok {
		annotations = labels.Merge(annotations, labels.Set{remediationForAnnotation: value})
	}
	return machinetemplate.Template{
		Namespace: s.plane.Namespace, Owner: ownerOf(s.plane), Annotations: annotations,
		Labels: labels.Merge(wanted.ObjectMeta.Labels, labels.Set{
			// The label with the name of the control plane is left out: by it the quorum guard recognizes those who
			// manage etcd themselves.
			clusterv1.ClusterNameLabel: s.cluster.Name, clusterv1.MachineControlPlaneLabel: "",
		}),
		Spec: clusterv1.MachineSpec{
			ClusterName: s.cluster.Name, Version: s.plane.Spec.Version, FailureDomain: m.Spec.FailureDomain,
			InfrastructureRef: wanted.Spec.InfrastructureRef, Bootstrap: wanted.Spec.Bootstrap,
			MinReadySeconds: wanted.Spec.MinReadySeconds,
			ReadinessGates:  wanted.Spec.ReadinessGates, Deletion: wanted.Spec.Deletion, Taints: wanted.Spec.Taints,
		},
	}
}

func ownerOf(plane *v1alpha1.RunlevelControlPlane) metav1.OwnerReference {
	return *metav1.NewControllerRef(plane, v1alpha1.GroupVersion.WithKind("RunlevelControlPlane"))
}

// FailureDomain returns the failure domain of a new machine beside others; empty if the cluster has none.
func (s *Snapshot) FailureDomain(machines []Machine) string {
	var names []string
	for _, domain := range s.cluster.Status.FailureDomains {
		if ptr.Deref(domain.ControlPlane, false) {
			names = append(names, domain.Name)
		}
	}
	return failureDomainFor(names, machines)
}
