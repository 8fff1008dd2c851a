// Package remediation contains the rules that the MachineHealthChecks of both APIs share: when a timeout is over, how
// many machines may be unhealthy, which changes of a Node matter, and which objects request remediation by another
// controller. The health of a machine, and its consequences, differ between the APIs: they are in the packages
// healthcheck.
//
// The package writes nothing, except that Requests.End deletes a request.
//
// Start with Census.
package remediation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// DefaultNodeStartupTimeout limits the time of a machine without a node, if the health check has no timeout.
const DefaultNodeStartupTimeout = 10 * time.Minute

// Over reports whether a timeout is over, and otherwise when to check again.
func Over(since time.Time, timeout time.Duration, now time.Time) (isOver bool, again time.Duration) {
	left := since.Add(timeout).Sub(now)
	if left < 0 {
		return true, 0
	}
	return false, left + time.Second // times of conditions have no fractions of a second
}

// Earliest returns the shorter duration; zero is none.
func Earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// MostUnhealthy returns how many of some machines may be unhealthy while machines are remediated. Percentages are
// rounded down; without a limit, all may be.
func MostUnhealthy(limit *intstr.IntOrString, machines int) (int, error) {
	if limit == nil {
		return machines, nil
	}
	value := *limit
	if value.Type == intstr.String { // a string without a percent sign is a number too
		if number := intstr.Parse(value.StrVal); number.Type == intstr.Int {
			value = number
		}
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(&value, machines, false)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a number nor a percentage", limit.String())
	}
	return max(0, most), nil
}

// A Census contains the numbers of machines that a health check selects, and of those that are healthy, and the range
// of unhealthy machines within which machines are remediated.
type Census struct {
	Machines, Healthy, Least, Most int
}

// Unhealthy returns the number of machines that are not known to be healthy.
func (c Census) Unhealthy() int { return c.Machines - c.Healthy }

// AllowsRemediation is false if so many machines are unhealthy that the cause is probably elsewhere, or fewer than the
// least.
func (c Census) AllowsRemediation() bool { return c.Unhealthy() >= c.Least && c.Unhealthy() <= c.Most }

// Left returns the number of further machines that may become unhealthy before remediation stops.
func (c Census) Left() int32 { return int32(max(0, c.Most-c.Unhealthy())) }

// NodeChanges passes changes of conditions and of the fields that identify the owner of a Node, but no heartbeats.
var NodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.UID != now.UID || before.Spec.ProviderID != now.Spec.ProviderID ||
		deletion.OwnerOfNode(before) != deletion.OwnerOfNode(now) || !maps.Equal(statesOf(before), statesOf(now))
}}

// A state is the status of a condition, and since when it has it.
type state struct {
	status corev1.ConditionStatus
	since  int64
}

func statesOf(node *corev1.Node) map[corev1.NodeConditionType]state {
	all := map[corev1.NodeConditionType]state{}
	for _, c := range node.Status.Conditions {
		all[c.Type] = state{c.Status, c.LastTransitionTime.Unix()}
	}
	return all
}

// Requests are the objects that ask another controller for remediation, by the names of their machines: an object has
// the name of its machine, so that there is at most one.
type Requests map[string]*unstructured.Unstructured

// RequestKind returns the kind of the objects that are created from a kind of templates.
func RequestKind(template schema.GroupVersionKind) schema.GroupVersionKind {
	template.Kind = strings.TrimSuffix(template.Kind, "Template")
	return template
}

// ListRequests reads the requests of a namespace, once for all machines. The reader must not cache them.
func ListRequests(ctx context.Context, reader client.Reader, template schema.GroupVersionKind,
	namespace string) (Requests, error) {
	var existing unstructured.UnstructuredList
	kind := RequestKind(template)
	existing.SetAPIVersion(kind.GroupVersion().String())
	existing.SetKind(kind.Kind + "List")
	if err := reader.List(ctx, &existing, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the objects that ask for remediation: %w", err)
	}
	byName := Requests{}
	for i := range existing.Items {
		byName[existing.Items[i].GetName()] = &existing.Items[i]
	}
	return byName, nil
}

// End deletes the request for a healthy machine. It leaves a request alone that the machine does not own.
func (r Requests) End(ctx context.Context, c client.Writer, machine metav1.Object) error {
	request := r[machine.GetName()]
	isOwner := func(owner metav1.OwnerReference) bool { return owner.UID == machine.GetUID() }
	if request == nil || request.GetDeletionTimestamp() != nil ||
		!slices.ContainsFunc(request.GetOwnerReferences(), isOwner) {
		return nil
	}
	uid := request.GetUID()
	if err := client.IgnoreNotFound(c.Delete(ctx, request, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete %s %s: %w", request.GetKind(), request.GetName(), err)
	}
	return nil
}
