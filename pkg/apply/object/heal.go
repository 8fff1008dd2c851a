package object

import (
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/runlevel/runlevel/pkg/cluster"
)

// Why an object could not be applied, in the words of the cluster-version operator.
const (
	ResourceNotFound    = "UpdatePayloadResourceNotFound"
	ResourceConflict    = "UpdatePayloadResourceConflict"
	ClusterDown         = "UpdatePayloadClusterDown"
	ClusterError        = "UpdatePayloadClusterError"
	ResourceInvalid     = "UpdatePayloadResourceInvalid"
	ClusterUnauthorized = "UpdatePayloadClusterUnauthorized"
	ResourceForbidden   = "UpdatePayloadResourceForbidden"
	ClusterOverloaded   = "UpdatePayloadClusterOverloaded"
	ResourceTypeMissing = "UpdatePayloadResourceTypeMissing"
	PayloadFailed       = "UpdatePayloadFailed"
	MultipleErrors      = "MultipleErrors"
	WorkloadFailed      = "WorkloadFailed" // of ours: a Job has failed, a rollout was given up
)

// A refusal is a failure that trying again does not mend, and that we know ourselves.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.message }

// A leaving is an object that is being deleted: only when it is gone, it can be made anew.
type leaving struct{ message string }

func (l leaving) Error() string { return l.message }

// A CutOff is a request that was given up in its midst, as the lock is lost for example.
type CutOff struct{ Cause error }

func (c CutOff) Error() string {
	return "it was cut off, and may be applied or not: " + c.Cause.Error()
}

func (c CutOff) Unwrap() error { return c.Cause }

// A remedy is one row of what may heal and what can't.
type remedy struct {
	name   string // what it is about
	is     func(error) bool
	reason string
	heals  healing
}

// A healing says whether it is worth trying again.
type healing string

const (
	never     healing = "never"
	byItself  healing = "by itself"
	inThisRun healing = "if this run has written its definition" // which not all of a cluster's servers may know yet
	atFirst   healing = "if this run has just written its definition"
)

// remedies are looked through from the top: the first that fits, counts. Rows that tell
// one cause from others with the same code come before those.
var remedies = []remedy{
	{"ours", func(err error) bool { return errors.As(err, new(refusal)) }, "", never},
	{"kind that is not served", func(err error) bool { return errors.Is(err, cluster.ErrNotServed) }, ResourceTypeMissing, inThisRun},
	{"object that is being deleted", func(err error) bool { return errors.As(err, new(leaving)) }, ResourceConflict, byItself},
	{"unknown field", func(err error) bool { return len(unknownFields(err)) > 0 }, ResourceInvalid, inThisRun},
	{"denied by a webhook", says("admission webhook", "denied the request"), ResourceForbidden, never},
	{"denied by a policy", says("AdmissionPolicy", "denied request"), ResourceForbidden, never},
	{"webhook that does not answer", says("failed calling webhook"), ClusterError, byItself},
	{"quota", both(apierrors.IsForbidden, says("exceeded quota")), ResourceForbidden, byItself},
	{"quota that is not computed yet", both(apierrors.IsForbidden, says("status unknown for quota")), ResourceForbidden, byItself},
	{"namespace that is being deleted", isTerminating, ResourceForbidden, byItself},
	{"service account that is not there yet", both(apierrors.IsForbidden, says("error looking up service account")), ResourceForbidden, byItself},
	{"forbidden", apierrors.IsForbidden, ResourceForbidden, never},
	{"not logged in", apierrors.IsUnauthorized, ClusterUnauthorized, never},
	{"too large", tooLarge, ResourceInvalid, never},
	{"invalid", apierrors.IsInvalid, ResourceInvalid, atFirst}, // by the schema that was, perhaps
	{"definition that is being deleted", says("create not allowed while custom resource definition is terminating"), ResourceTypeMissing, byItself},
	{"malformed", isBadRequest, ResourceInvalid, never},
	{"somebody else wrote at the same time", apierrors.IsConflict, ResourceConflict, byItself},
	{"made by somebody else at the same time", apierrors.IsAlreadyExists, ResourceNotFound, byItself},
	{"too many requests", func(err error) bool { return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) }, ClusterOverloaded, byItself},
	{"namespace that is not there", isNoNamespace, ResourceNotFound, byItself}, // an operator may make it, which was applied before
	{"not found", apierrors.IsNotFound, ResourceNotFound, inThisRun},
	{"server that is not up", func(err error) bool {
		return apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnexpectedServerError(err)
	}, ClusterDown, byItself},
	{"kind of a server that is not up", func(err error) bool { return errors.As(err, new(*cluster.UnknownKind)) }, ClusterDown, byItself},
	{"connection", isConnection, ClusterDown, byItself},
	{"server error", func(err error) bool { return status(err).Code >= http.StatusInternalServerError }, ClusterError, byItself},
}

// remedyFor is the row that fits a failure. What no row knows is not tried again.
func remedyFor(err error) remedy {
	for _, row := range remedies {
		if row.is(err) {
			return row
		}
	}
	return remedy{name: "unknown", reason: PayloadFailed, heals: never}
}

// says is for failures that only their texts tell apart.
func says(parts ...string) func(error) bool {
	return func(err error) bool {
		text := err.Error()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
}

func both(a, b func(error) bool) func(error) bool {
	return func(err error) bool { return a(err) && b(err) }
}

// status is what the server said.
func status(err error) metav1.Status {
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		return said.Status()
	}
	return metav1.Status{}
}

// isTerminating is for objects in a namespace that is being deleted.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isNoNamespace is for objects in a namespace that is not there.
func isNoNamespace(err error) bool {
	details := status(err).Details
	return apierrors.IsNotFound(err) && details != nil && details.Kind == "namespaces"
}

// tooLarge is for objects that neither the API server nor etcd takes.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || says("etcdserver: request is too large")(err) || says("trying to send message larger than max")(err)
}

// isBadRequest is for what the server can't read. An apply whose object is not as its
// schema wants it is one, too, but comes with 500 and without a reason.
func isBadRequest(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) ||
		says("failed to create typed patch object")(err) || says("unable to convert unstructured object")(err)
}

// isConnection is for what never reached a server, or was cut off by others than us.
func isConnection(err error) bool {
	isCut := errors.As(err, new(net.Error)) || says("error when reading response body")(err) // in the middle of an answer
	return isCut && !IsInterruption(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// IsInterruption is for a request that was cut off because the run has to end.
func IsInterruption(err error) bool { return errors.Is(err, context.Canceled) }

// unknownField is how the API server says that a schema lacks a field.
var unknownField = regexp.MustCompile(`(?m)(?:^|[\s:])(\.\S+): field not declared in schema`)

// unknownFields are those that an apply was refused for.
func unknownFields(err error) []string {
	if err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
		return nil
	}
	var paths []string
	for _, found := range unknownField.FindAllStringSubmatch(err.Error(), -1) {
		paths = append(paths, found[1])
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
