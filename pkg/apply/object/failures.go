package object

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
)

// Reasons for which an object could not be applied, as the cluster-version operator names them.
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
	WorkloadFailed      = "WorkloadFailed" // Runlevel's own: a Job has failed, or a rollout has stalled
)

// A refusal is a failure that this package itself has found. Refusals are not retried.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.message }

// A terminatingError is the failure of a terminating object, which can be created again only after its end.
type terminatingError struct{ message string }

func (t terminatingError) Error() string { return t.message }

// A CutOff is the error of a request that was interrupted, for example by the loss of the lock.
type CutOff struct{ Cause error }

func (c CutOff) Error() string {
	return "the request was cut off, and may or may not be applied: " + c.Cause.Error()
}

func (c CutOff) Unwrap() error { return c.Cause }

// A cause is one row of the table of failures.
type cause struct {
	name   string
	is     func(error) bool
	reason string
	retry  retry
}

// A retry is the condition under which another try may succeed.
type retry string

const (
	never     retry = "never"
	later     retry = "later"
	whileNew  retry = "if this run has written the definition" // some of the cluster's API servers may not know it yet
	justAfter retry = "if this run has just written the definition"
)

// causes are matched from the top: the first matching row counts. A row for a special case comes
// before the general row with the same code.
var causes = []cause{
	{"own refusal", func(err error) bool { return errors.As(err, new(refusal)) }, "", never},
	{"kind not served", func(err error) bool {
		return errors.Is(err, cluster.ErrNotServed)
	}, ResourceTypeMissing, whileNew},
	{"terminating object", func(err error) bool {
		return errors.As(err, new(terminatingError))
	}, ResourceConflict, later},
	{"unknown field", func(err error) bool { return len(unknownFields(err)) > 0 }, ResourceInvalid, whileNew},
	{"denied by a webhook", isDeniedByWebhook, ResourceForbidden, never},
	{"denied by a policy", hasMessage("AdmissionPolicy", "denied request"), ResourceForbidden, never},
	{"webhook that does not answer", hasMessage("failed calling webhook"), ClusterError, later},
	{"quota", both(apierrors.IsForbidden, hasMessage("exceeded quota")), ResourceForbidden, later},
	{"quota not computed yet", both(apierrors.IsForbidden, hasMessage("status unknown for quota")),
		ResourceForbidden, later},
	{"terminating namespace", isInTerminating, ResourceForbidden, later},
	{"service account does not exist yet",
		both(apierrors.IsForbidden, hasMessage("error looking up service account")), ResourceForbidden, later},
	{"terminating definition",
		hasMessage("create not allowed while custom resource definition is terminating"), ResourceTypeMissing, later},
	{"forbidden", apierrors.IsForbidden, ResourceForbidden, never},
	{"not logged in", apierrors.IsUnauthorized, ClusterUnauthorized, never},
	{"too large", isTooLarge, ResourceInvalid, never},
	{"invalid", apierrors.IsInvalid, ResourceInvalid, justAfter}, // perhaps by the former schema
	{"malformed", isBadRequest, ResourceInvalid, never},
	{"another client wrote at the same time", apierrors.IsConflict, ResourceConflict, later},
	{"created by another client at the same time", apierrors.IsAlreadyExists, ResourceNotFound, later},
	{"too many requests", func(err error) bool {
		return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err)
	}, ClusterOverloaded, later},
	{"namespace does not exist", IsNoNamespace, ResourceNotFound, later}, // an operator applied before may create it
	{"not found", apierrors.IsNotFound, ResourceNotFound, whileNew},
	{"unavailable server", func(err error) bool {
		return apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnexpectedServerError(err)
	}, ClusterDown, later},
	{"kind of an unavailable server", func(err error) bool {
		return errors.As(err, new(*cluster.UnknownKind)) || errors.As(err, new(*cluster.HeldKind))
	}, ClusterDown, later},
	{"connection", cluster.IsNoAnswer, ClusterDown, later},
	{"server error", func(err error) bool {
		return status(err).Code >= http.StatusInternalServerError
	}, ClusterError, later},
}

// causeOf returns the first matching row for a failure. A failure without a row is not retried.
func causeOf(err error) cause {
	for _, row := range causes {
		if row.is(err) {
			return row
		}
	}
	return cause{name: "unknown", reason: PayloadFailed, retry: never}
}

// hasMessage matches failures that only their messages distinguish.
func hasMessage(parts ...string) func(error) bool {
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

// isDeniedByWebhook reports whether a webhook has refused an object: the message is then the webhook's.
func isDeniedByWebhook(err error) bool {
	return hasMessage("admission webhook", "denied the request")(err)
}

// status returns the status in an error of the server.
func status(err error) metav1.Status {
	var apiStatus apierrors.APIStatus
	if errors.As(err, &apiStatus) {
		return apiStatus.Status()
	}
	return metav1.Status{}
}

// isInTerminating reports whether the namespace of an object is being deleted.
func isInTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsNoNamespace reports whether the namespace of an object does not exist.
func IsNoNamespace(err error) bool {
	details := status(err).Details
	return apierrors.IsNotFound(err) && details != nil && details.Kind == "namespaces"
}

// isTooLarge reports whether an object is too large for the API server or etcd.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || hasMessage("etcdserver: request is too large")(err) ||
		hasMessage("trying to send message larger than max")(err)
}

// isBadRequest reports whether the server can't decode an object. An apply that violates its schema
// counts as well, but the server answers it with 500 and without a reason.
func isBadRequest(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) ||
		hasMessage("failed to create typed patch object")(err) ||
		hasMessage("unable to convert unstructured object")(err)
}

// IsInterruption reports whether a request was cut off because the run has to end.
func IsInterruption(err error) bool { return errors.Is(err, context.Canceled) }

// unknownField is the message of the API server for a field that a schema lacks.
var unknownField = regexp.MustCompile(`(?m)(?:^|[\s:])(\.\S+): field not declared in schema`)

// unknownFields returns the fields that the schema lacks, if an apply was refused for them.
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
