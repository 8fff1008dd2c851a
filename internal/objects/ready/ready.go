// Package ready checks whether an object is ready, and if not, the reason why it waits,
// in one line that a person can act on.
//
// Built-in kinds and ClusterOperators have rules in a table; a custom resource is checked
// by its conditions, as kstatus does; and any manifest can define ready in the annotation
// runlevel.dev/ready, as a CEL expression over the object with the API server's
// functions. PodProblems returns why the pods of a workload do not become ready.
//
// It reads no cluster and no clock, and does not wait: the caller passes all facts.
//
// Check is the call to start from; Validate returns the problem of an annotation.
package ready

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A Standard is how much must be true of an object before later objects are applied.
type Standard string

// The standards.
const (
	Full     Standard = "ready"    // it is rolled out and works
	Upstream Standard = "upstream" // as for the cluster-version operator, which awaits no rollout
)

// A State is the state of an object's readiness.
type State string

// The states.
const (
	Ready   State = "ready"
	Waiting State = "waiting"
	Failed  State = "failed" // waiting longer will not help
)

// A Verdict is the result of checking one object.
type Verdict struct {
	State   State
	Message string        // why it waits or has failed: one line in lower case; empty when it is ready
	Reason  string        // the cluster-version operator's, if it has one
	Effect  reason.Effect // the same
}

// Related has the facts for a verdict in addition to the live object.
type Related struct {
	// Manifest is the object in the release. Its status has the versions that a
	// ClusterOperator has to report.
	Manifest *unstructured.Unstructured

	// Serving is true for Services that have ready endpoints, of those that the API server
	// calls for the object, as returned by kinds.CalledServices.
	Serving map[types.NamespacedName]bool

	// Installing is true if the release is being installed. The cluster-version operator
	// then checks only ClusterOperators, and not their versions.
	Installing bool
}

// A rule checks the objects of a kind.
type rule func(object live, related Related) Verdict

// full are the rules of Full. Other built-in kinds are ready at once, also a
// PersistentVolumeClaim: it may have to wait for a pod that comes later.
var full = map[schema.GroupKind]rule{
	kinds.Deployment:                     checkDeployment,
	kinds.ReplicaSet:                     checkReplicaSet,
	kinds.ReplicationController:          checkReplicaSet,
	kinds.StatefulSet:                    checkStatefulSet,
	kinds.DaemonSet:                      checkDaemonSet,
	kinds.Job:                            checkJob,
	kinds.Pod:                            checkPod,
	kinds.ValidatingWebhookConfiguration: checkWebhooks,
	kinds.MutatingWebhookConfiguration:   checkWebhooks,
	kinds.APIService:                     checkAPIService,
	kinds.ClusterOperator:                checkClusterOperator,
	kinds.CustomResourceDefinition:       checkDefinition,
	kinds.Namespace:                      checkNamespace,
	kinds.Gateway:                        checkGateway,
	kinds.GatewayClass:                   checkGatewayClass,
	kinds.HTTPRoute:                      checkRoute,
	kinds.GRPCRoute:                      checkRoute,
	kinds.TCPRoute:                       checkRoute,
	kinds.TLSRoute:                       checkRoute,
	kinds.UDPRoute:                       checkRoute,
}

// Check returns whether a live object is ready. The object is nil if it does not
// exist.
func Check(object *unstructured.Unstructured, standard Standard, related Related) Verdict {
	if object == nil || object.Object == nil {
		return waiting("it does not exist yet")
	}
	kind := object.GroupVersionKind().GroupKind()
	expression, isMarked := object.GetAnnotations()[Annotation]
	check, isKnown := full[kind]
	switch {
	case expression == None:
		return ready()
	case standard == Upstream && !isMarked:
		return checkUpstream(kind, live(object.Object), related)
	case object.GetDeletionTimestamp() != nil:
		return waiting(beingDeleted)
	case isMarked:
		return checkExpression(object, expression)
	case isKnown:
		return check(live(object.Object), related)
	case kinds.ScopeOf(kind) != kinds.Unknown:
		return ready()
	default:
		return checkConditions(object)
	}
}

// Awaits reports whether an object can be other than ready, unless it is being deleted:
// other objects need not be watched.
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
	case kinds.ClientConfigPath(kind) != nil && kind != kinds.CustomResourceDefinition:
		return len(kinds.CalledServices(object)) > 0
	case isKnown:
		return true
	default:
		return kinds.ScopeOf(kind) == kinds.Unknown
	}
}

// Messages of more than one rule.
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
