// Package ready checks whether an object is ready. If it is not, the verdict has the reason,
// in one line that a person can act on.
//
// Built-in kinds and ClusterOperators have rules in a table; a custom resource is checked
// by its conditions, as kstatus does; and any manifest can define ready in the annotation
// runlevel.dev/ready, as a CEL expression over the object with the API server's
// functions. PodProblems returns the problems of pods that do not become ready.
//
// The package reads no cluster and no clock, and does not wait: the caller passes all facts.
//
// Start with Check; Validate returns the problem of an annotation.
package ready

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A Standard is the set of requirements for an object before later objects are applied.
type Standard string

// The standards.
const (
	Full     Standard = "ready"    // the object is rolled out and works
	Upstream Standard = "upstream" // the requirements of the cluster-version operator, which awaits no rollout
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
	Message string        // why the object waits or has failed: one line in lower case; empty if it is ready
	Reason  string        // the reason of the cluster-version operator, if there is one
	Effect  reason.Effect // the effect that the cluster-version operator reports, if there is one
}

// Related contains the facts for a verdict in addition to the live object.
type Related struct {
	// Manifest is the object in the release. Its status has the versions that a
	// ClusterOperator has to report.
	Manifest *unstructured.Unstructured

	// Serving is true for the Services of kinds.CalledServices, which the API server calls for
	// the object, that have ready endpoints.
	Serving map[types.NamespacedName]bool

	// Installing is true if the release is being installed. The cluster-version operator
	// then checks only ClusterOperators, and not their versions.
	Installing bool
}

// A rule checks the objects of a kind.
type rule func(object liveObject, related Related) Verdict

// fullRules are the rules of Full. Objects of other built-in kinds are always ready: a
// PersistentVolumeClaim, for example, may have to wait for a pod that comes later.
var fullRules = map[schema.GroupKind]rule{
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
	check, isKnown := fullRules[kind]
	switch {
	case expression == None:
		return ready()
	case standard == Upstream && !isMarked:
		return checkUpstream(kind, liveObject(object.Object), related)
	case object.GetDeletionTimestamp() != nil:
		return waiting(beingDeleted)
	case isMarked:
		return checkExpression(object, expression)
	case isKnown:
		return check(liveObject(object.Object), related)
	case kinds.ScopeOf(kind) != kinds.Unknown:
		return ready()
	default:
		return checkConditions(object)
	}
}

// Awaits reports whether an object that is not being deleted can be unready. Objects that
// are always ready need not be watched.
func Awaits(object *unstructured.Unstructured, standard Standard) bool {
	kind := object.GroupVersionKind().GroupKind()
	expression, isMarked := object.GetAnnotations()[Annotation]
	if isMarked {
		return expression != None
	}
	if standard == Upstream {
		_, isKnown := upstreamRules[kind]
		return isKnown
	}
	_, isKnown := fullRules[kind]
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
