// Package ready says whether an object is ready, and if not, what it is waiting for,
// in one line that a person can act on.
//
// What it knows of Kubernetes' own kinds and of ClusterOperators is in a table, rule by
// rule; a custom resource is judged by its conditions, as kstatus does; and any manifest
// can say itself what ready means, in the annotation runlevel.dev/ready: CEL over the
// object, with the functions that the API server has for it too. PodProblems says why
// the pods of a workload do not come up.
//
// It asks no cluster, looks at no clock, and waits for nothing: who calls it brings what
// it needs to know.
//
// Check is the call to start from; Validate says what is wrong with an annotation.
package ready

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A Standard is how much must be true of an object before what comes after it goes on.
type Standard string

// The standards.
const (
	Full     Standard = "ready"    // it is rolled out, and does what it is for
	Upstream Standard = "upstream" // the cluster-version operator would go on: it awaits no rollout
)

// A ReadyState is what is known of an object's readiness.
type ReadyState string

// The states.
const (
	Ready   ReadyState = "ready"
	Waiting ReadyState = "waiting"
	Failed  ReadyState = "failed" // waiting longer will not help
)

// A Verdict is what is said of one object.
type Verdict struct {
	State   ReadyState
	Message string        // what it waits for, or why it failed: one line in lower case; empty when it is ready
	Reason  string        // the cluster-version operator's, where that has one
	Effect  reason.Effect // the same
}

// Related is what a verdict needs to know beside the object itself.
type Related struct {
	// Manifest is the object as the release has it. Its status says which versions a
	// ClusterOperator is to report.
	Manifest *unstructured.Unstructured

	// Serving says of the Services that the API server calls for the object, as
	// kinds.CalledServices finds them, whether anything serves them.
	Serving map[types.NamespacedName]bool

	// Installing says that the release is being installed. The cluster-version operator
	// looks at ClusterOperators only then, and does not ask for their versions.
	Installing bool
}

// A rule judges the objects of a kind.
type rule func(object live, around Related) Verdict

// full are the kinds that Full has rules for. Other kinds of Kubernetes are ready at
// once, a PersistentVolumeClaim too: it may have to wait for a pod, which comes later.
var full = map[schema.GroupKind]rule{
	{Group: "apps", Kind: "Deployment"}:  checkDeployment,
	{Group: "apps", Kind: "ReplicaSet"}:  checkReplicaSet,
	{Kind: "ReplicationController"}:      checkReplicaSet,
	{Group: "apps", Kind: "StatefulSet"}: checkStatefulSet,
	{Group: "apps", Kind: "DaemonSet"}:   checkDaemonSet,
	{Group: "batch", Kind: "Job"}:        checkJob,
	{Kind: "Pod"}:                        checkPod,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: checkWebhooks,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   checkWebhooks,
	kinds.APIService:               checkAPIService,
	kinds.ClusterOperator:          checkClusterOperator,
	kinds.CustomResourceDefinition: checkDefinition,
	kinds.Namespace:                checkNamespace,
}

// Check says whether an object is ready: as it was last seen on the cluster, or nil if
// it was not.
func Check(object *unstructured.Unstructured, standard Standard, around Related) Verdict {
	if object == nil || object.Object == nil {
		return waiting("it is not there yet")
	}
	kind := object.GroupVersionKind().GroupKind()
	expression, isMarked := object.GetAnnotations()[Annotation]
	judge, isKnown := full[kind]
	switch {
	case expression == None:
		return ready()
	case standard == Upstream && !isMarked:
		return checkUpstream(kind, live(object.Object), around)
	case object.GetDeletionTimestamp() != nil:
		return waiting(beingDeleted)
	case isMarked:
		return checkExpression(object, expression)
	case isKnown:
		return judge(live(object.Object), around)
	case kinds.ScopeOf(kind) != kinds.Unknown:
		return ready()
	default:
		return checkConditions(object)
	}
}

// Awaits says whether an object can be other than ready, unless it is being deleted: the
// others need not be watched.
func Awaits(object *unstructured.Unstructured, standard Standard) bool {
	kind := object.GroupVersionKind().GroupKind()
	expression, isMarked := object.GetAnnotations()[Annotation]
	if isMarked {
		return expression != None
	}
	if standard == Upstream {
		_, isKnown := upstream[kind]
		return isKnown
	}
	_, isKnown := full[kind]
	switch {
	case callsServices(kind):
		return len(kinds.CalledServices(object)) > 0
	case isKnown:
		return true
	default:
		return kinds.ScopeOf(kind) == kinds.Unknown
	}
}

// What more than one rule says.
const (
	beingDeleted = "it is being deleted"
	notSeen      = "the controller has not seen the change yet"
)

func ready() Verdict { return Verdict{State: Ready} }

func waiting(format string, args ...any) Verdict {
	return Verdict{State: Waiting, Message: sentence(fmt.Sprintf(format, args...))}
}

func failed(format string, args ...any) Verdict {
	return Verdict{State: Failed, Message: sentence(fmt.Sprintf(format, args...))}
}
