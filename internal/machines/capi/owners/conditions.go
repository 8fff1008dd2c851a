package owners

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const (
	// judgedAfter is the age from which a machine without a condition UpToDate is counted.
	judgedAfter = 10 * time.Second
	// stuckAfter limits the time of a deletion before its machine is named.
	stuckAfter = 15 * time.Minute
	// shownMessages limits how many messages of machines a condition has.
	shownMessages = 10
	// longestMessage limits the bytes of the message of a condition.
	longestMessage = 32768
)

// Condition returns a condition whose reason is its type, or "Not" and its type.
func Condition(kind string, isTrue bool, message string) metav1.Condition {
	message = printable.Truncate(message, longestMessage)
	if isTrue {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: message}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Not" + kind, Message: message}
}

// SetPaused sets the condition Paused of an owner, and reports whether the owner is paused: nothing else of its status
// changes until the pause ends. The Cluster may be nil.
func SetPaused(owner Owner, cluster *clusterv1.Cluster) bool {
	isPaused := contract.IsPaused(owner, cluster)
	Set(owner, Condition(clusterv1.PausedCondition, isPaused, ""))
	return isPaused
}

// A Summary is the state of an owner's machines.
type Summary struct {
	Machines        []*clusterv1.Machine
	Current, Wanted int       // replicas
	Problem         string    // problem of the last reconciliation
	Before, After   string    // the wait of a deletion before its machines are deleted, and after that
	Now             time.Time // time of the observation
}

// SetSummary sets the conditions that summarize the machines of an owner: ScalingUp and ScalingDown, MachinesReady and
// MachinesUpToDate, and Deleting.
func SetSummary(owner Owner, s Summary) {
	isDeleting := owner.GetDeletionTimestamp() != nil
	if isDeleting {
		s.Wanted = 0
	}
	// A new machine may not have a condition UpToDate yet. Machines of a set that belongs to no MachineDeployment have
	// none, unless another controller sets it.
	judged := slices.DeleteFunc(slices.Clone(s.Machines), func(m *clusterv1.Machine) bool {
		return meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineUpToDateCondition) == nil &&
			s.Now.Sub(m.CreationTimestamp.Time) <= judgedAfter
	})
	Set(owner, s.scalingUp(), s.scalingDown(),
		aggregate(clusterv1.MachinesReadyCondition, clusterv1.MachineReadyCondition, s.Machines),
		aggregate(clusterv1.MachinesUpToDateCondition, clusterv1.MachineUpToDateCondition, judged),
		Condition(clusterv1.DeletingCondition, isDeleting, s.deletion(isDeleting)))
}

// scalingUp returns the condition ScalingUp, with the reasons that block the scaling. It also reports problems of other
// kinds.
func (s Summary) scalingUp() metav1.Condition {
	isTrue, message := s.Current < s.Wanted, s.Problem
	if isTrue {
		message = fmt.Sprintf("Scaling up from %d to %d replicas", s.Current, s.Wanted)
		if s.Problem != "" {
			message += " is blocked because:\n* " + s.Problem
		}
	}
	return Condition(clusterv1.ScalingUpCondition, isTrue, message)
}

func (s Summary) scalingDown() metav1.Condition {
	isTrue, message := s.Current > s.Wanted, ""
	if isTrue {
		message = fmt.Sprintf("Scaling down from %d to %d replicas", s.Current, s.Wanted) + s.stuck()
	}
	return Condition(clusterv1.ScalingDownCondition, isTrue, message)
}

// deletion returns the message of the condition Deleting.
func (s Summary) deletion(isDeleting bool) string {
	switch {
	case !isDeleting:
		return ""
	case s.Before == "" && len(s.Machines) > 0:
		return fmt.Sprintf("Deleting %d Machines", len(s.Machines)) + s.stuck()
	}
	return cmp.Or(s.Before, s.After, "Deletion completed")
}

// stuck returns a line on machines whose deletion takes long.
func (s Summary) stuck() string {
	var names []string
	for _, m := range s.Machines {
		if m.DeletionTimestamp != nil && s.Now.Sub(m.DeletionTimestamp.Time) > stuckAfter {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\n* %s in deletion for more than 15m: see their condition Deleting", machineNames(names))
}

// Remediated returns the condition Remediating of the owner of machines, with the messages of the machines that the
// owner has to replace; or, if there is none, the names of machines that a health check has found unhealthy.
func Remediated(machines []*clusterv1.Machine, owner string) metav1.Condition {
	var names []string
	var marked []*clusterv1.Machine
	for _, m := range machines {
		if rolloutrules.IsMarked(m) {
			marked = append(marked, m)
		}
		if meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
			names = append(names, m.Name)
		}
	}
	if len(marked) > 0 {
		aggregated := aggregate(clusterv1.RemediatingCondition, clusterv1.MachineOwnerRemediatedCondition, marked)
		return Condition(clusterv1.RemediatingCondition, true, aggregated.Message)
	}
	message, verb := "", "is"
	if len(names) > 1 {
		verb = "are"
	}
	if len(names) > 0 {
		message = fmt.Sprintf("%s %s not healthy (not to be remediated by %s)", machineNames(names), verb, owner)
	}
	return Condition(clusterv1.RemediatingCondition, false, message)
}

// Count counts machines. A machine counts as neither ready, nor available, nor up to date during its update in place.
func Count(machines []*clusterv1.Machine) (all, ready, available, upToDate *int32) {
	ready, available, upToDate = new(int32), new(int32), new(int32)
	for _, m := range machines {
		if rolloutrules.IsUpdating(m) {
			continue
		}
		for condition, number := range map[string]*int32{
			clusterv1.MachineReadyCondition: ready, clusterv1.MachineAvailableCondition: available,
			clusterv1.MachineUpToDateCondition: upToDate,
		} {
			if meta.IsStatusConditionTrue(m.Status.Conditions, condition) {
				*number++
			}
		}
	}
	return new(int32(len(machines))), ready, available, upToDate
}

// UpToDate returns the condition UpToDate of a machine, by the reasons why its owner's template makes it outdated.
// Without such reasons, the condition depends on whether an update of the machine is complete.
func UpToDate(machine *clusterv1.Machine, missing []string) metav1.Condition {
	condition := metav1.Condition{
		Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse, ObservedGeneration: machine.Generation,
	}
	kubelet := ""
	if machine.Status.NodeInfo != nil {
		kubelet = machine.Status.NodeInfo.KubeletVersion
	}
	updating := ptr.Deref(meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineUpdatingCondition),
		metav1.Condition{})
	switch version := machine.Spec.Version; {
	case len(missing) > 0:
		condition.Reason, condition.Message = clusterv1.MachineNotUpToDateReason, "* "+strings.Join(missing, "\n* ")
	case rolloutrules.IsUpdating(machine) || updating.Status == metav1.ConditionTrue:
		condition.Reason = clusterv1.MachineUpToDateUpdatingReason
		condition.Message = "* " + cmp.Or(updating.Message, "In-place update in progress")
	case version != "" && kubelet != "" && kubelet != version:
		condition.Reason = clusterv1.MachineUpToDateUpdatingReason
		condition.Message = fmt.Sprintf("* Node.status.nodeInfo.kubeletVersion %s, %s required", kubelet, version)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, clusterv1.MachineUpToDateReason
	}
	return condition
}

// RolloutReasons returns why machines are outdated in the order of the condition RollingOut: another version first.
func RolloutReasons(reasons iter.Seq[string]) []string {
	rank := func(reason string) int {
		if strings.HasPrefix(strings.TrimPrefix(reason, "* "), "Version ") {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(reasons, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
}

// aggregate returns the condition of an owner for a condition of its machines: True if all machines have it, False if
// one reports that it is False.
func aggregate(kind, source string, machines []*clusterv1.Machine) metav1.Condition {
	if len(machines) == 0 {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: clusterv1.NoReplicasReason}
	}
	named, isIssue := map[string][]string{}, map[string]bool{} // names of machines by message
	worst := metav1.ConditionTrue
	for _, m := range machines {
		found := meta.FindStatusCondition(m.Status.Conditions, source)
		if found == nil {
			found = &metav1.Condition{
				Status:  metav1.ConditionUnknown,
				Message: "Condition " + source + " not yet reported",
			}
		}
		if found.Status == metav1.ConditionTrue {
			continue
		}
		message := cmp.Or(found.Message, found.Reason)
		named[message] = append(named[message], m.Name)
		isIssue[message] = isIssue[message] || found.Status == metav1.ConditionFalse
		if worst != metav1.ConditionFalse {
			worst = found.Status
		}
	}
	reason := source
	switch worst {
	case metav1.ConditionFalse:
		reason = "Not" + source
	case metav1.ConditionUnknown:
		reason = source + "Unknown"
	}
	return metav1.Condition{Type: kind, Status: worst, Reason: reason, Message: joinMessages(named, isIssue)}
}

// joinMessages returns a line for each message, with its further lines indented below. The order is that of Cluster
// API: issues before unknown conditions, and the messages of many machines before those of few.
func joinMessages(named map[string][]string, isIssue map[string]bool) string {
	rank := func(message string) int {
		if isIssue[message] {
			return 0
		}
		return 1
	}
	order := func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), len(named[b])-len(named[a]), slices.Compare(named[a], named[b]))
	}
	for _, names := range named {
		slices.Sort(names)
	}
	var lines []string
	for _, message := range slices.SortedFunc(maps.Keys(named), order) {
		separator := " "
		if strings.HasPrefix(message, "* ") {
			separator = "\n  "
		}
		lines = append(lines, fmt.Sprintf("* %s:%s%s", machineNames(named[message]), separator,
			strings.ReplaceAll(message, "\n", "\n  ")))
	}
	if more := len(lines) - shownMessages; more > 0 {
		lines = append(lines[:shownMessages], fmt.Sprintf("* %d more", more))
	}
	return strings.Join(lines, "\n")
}

// machineNames returns up to three names, and how many more there are.
func machineNames(names []string) string {
	const shown = 3
	switch {
	case len(names) == 1:
		return "Machine " + names[0]
	case len(names) > shown:
		return fmt.Sprintf("Machines %s, ... (%d more)", strings.Join(names[:shown], ", "), len(names)-shown)
	default:
		return "Machines " + strings.Join(names, ", ")
	}
}
