package rolloutrules

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
)

// QuorumHook is the name of the hook of the etcd quorum guard. The guard also permits updates in place of the machines
// that have it.
const QuorumHook = "EtcdQuorumOperator"

// permissionLifetime limits the time between the request of an update and its begin: a member of etcd may be lost
// later.
const permissionLifetime = time.Minute

// reservationTime is the time after a request in which the guard permits no other update: the clock of the control
// plane may be behind.
const reservationTime = 2 * permissionLifetime

// IsGuarded reports whether an update in place needs the permission of the quorum guard.
func IsGuarded(m *clusterv1.Machine) bool {
	return metav1.HasAnnotation(m.ObjectMeta, clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/"+QuorumHook)
}

// IsRequested reports whether the quorum guard was asked for permission, so recently that its answer counts.
func IsRequested(m *clusterv1.Machine, now time.Time) bool {
	timestamp, err := requestedAt(m)
	return err == nil && !timestamp.After(now) && now.Sub(timestamp) < permissionLifetime
}

func requestedAt(m *clusterv1.Machine) (time.Time, error) {
	return time.Parse(time.RFC3339, m.Annotations[annotation.UpdateRequested])
}

// IsPermitted reports whether an update in place may begin now.
func IsPermitted(m *clusterv1.Machine, now time.Time) bool {
	return !IsGuarded(m) || IsRequested(m, now) && isAnswered(m)
}

func isAnswered(m *clusterv1.Machine) bool {
	return m.Annotations[annotation.UpdateAllowed] == m.Annotations[annotation.UpdateRequested]
}

// AwaitsPermission reports whether the quorum guard must answer a request.
func AwaitsPermission(m *clusterv1.Machine, now time.Time) bool {
	return IsRequested(m, now) && !isAnswered(m)
}

// MayBegin reports whether the quorum guard has permitted an update so recently that it may begin, or has begun unseen.
func MayBegin(m *clusterv1.Machine, now time.Time) bool {
	timestamp, err := requestedAt(m)
	return err == nil && isAnswered(m) && now.Sub(timestamp).Abs() < reservationTime
}

// Permit is the answer of the quorum guard that an update in place may begin.
func Permit(m *clusterv1.Machine) {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation.UpdateAllowed, m.Annotations[annotation.UpdateRequested])
	delete(m.Annotations, annotation.UpdateHeld)
}

// Request asks the quorum guard for permission to update a machine in place.
func Request(m *clusterv1.Machine, now time.Time) {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation.UpdateRequested, now.UTC().Format(time.RFC3339))
}

// DropRequest removes the annotations that Request and the guard have written.
func DropRequest(m *clusterv1.Machine) {
	for _, key := range []string{annotation.UpdateRequested, annotation.UpdateAllowed, annotation.UpdateHeld} {
		delete(m.Annotations, key)
	}
}

// IsHeld reports whether a hook holds the deletion of a machine: that of the quorum guard ends once a replacement has
// its member.
func IsHeld(m *clusterv1.Machine) bool {
	if m.DeletionTimestamp == nil {
		return false
	}
	for key := range m.Annotations {
		if strings.HasPrefix(key, clusterv1.PreDrainDeleteHookAnnotationPrefix) ||
			strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			return true
		}
	}
	return false
}
