package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/payload"
)

var things = schema.GroupResource{Group: "shop.example.com", Resource: "things"}

// answered returns client-go's error for a response with only a code and a text.
func answered(code int, text string) error {
	return apierrors.NewGenericServerResponse(code, "patch", things, "hat", text, 0, true)
}

// causeRows are failures that a test can't provoke on a real server. Those that it can provoke are in
// failures_permanent_test.go and failures_transient_test.go.
var causeRows = map[string]struct {
	err    error
	row    string
	reason string
	retry  retry
}{
	"conflict": {apierrors.NewConflict(things, "hat", errors.New("the object has been modified")),
		"another client wrote at the same time", ResourceConflict, later},
	"race of creators": {apierrors.NewAlreadyExists(things, "hat"), "created by another client at the same time",
		ResourceNotFound, later},
	"timeout": {apierrors.NewTimeoutError("the request did not complete within 60s", 0),
		"unavailable server", ClusterDown, later},
	"server timeout": {apierrors.NewServerTimeout(things, "patch", 2), "too many requests", ClusterOverloaded, later},
	"429":            {apierrors.NewTooManyRequests("slow down", 7), "too many requests", ClusterOverloaded, later},
	"429 in plain text": {answered(http.StatusTooManyRequests, "Too many requests, please try again later."),
		"too many requests", ClusterOverloaded, later},
	"500": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "server error", ClusterError, later},
	"500 with no reason": {answered(http.StatusInternalServerError, "oops"), "unavailable server", ClusterDown,
		later},
	"502": {answered(http.StatusBadGateway, "bad gateway"), "unavailable server", ClusterDown, later},
	"503": {apierrors.NewServiceUnavailable("the server is currently unable to handle the request"),
		"unavailable server", ClusterDown, later},
	"504": {answered(http.StatusGatewayTimeout, "gateway timeout"), "unavailable server", ClusterDown, later},
	"404 of a path": {answered(http.StatusNotFound, "404 page not found"), "not found", ResourceNotFound,
		whileNew},
	"401": {apierrors.NewUnauthorized("Unauthorized"), "not logged in", ClusterUnauthorized, never},
	"405": {apierrors.NewMethodNotSupported(things, "patch"), "malformed", ResourceInvalid, never},
	"400": {apierrors.NewBadRequest("unexpected end of JSON"), "malformed", ResourceInvalid, never},
	"413": {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "too large", ResourceInvalid,
		never},
	"too large for etcd": {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), "too large",
		ResourceInvalid, never},
	"quota not computed": {apierrors.NewForbidden(things, "hat",
		errors.New("status unknown for quota: few, resources: services")), "quota not computed yet",
		ResourceForbidden, later},
	"kind being deleted, message of current servers": {apierrors.NewForbidden(things, "hat",
		errors.New("create not allowed while custom resource definition is terminating")),
		"terminating definition", ResourceTypeMissing, later},
	"kind being deleted": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusMethodNotAllowed,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: "create not allowed while custom resource definition is terminating"}},
		"terminating definition", ResourceTypeMissing, later},
	"refused connection": {&url.Error{
		Op:  "Patch",
		URL: "https://localhost",
		Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")},
	}, "connection", ClusterDown, later},
	"closed connection": {&url.Error{Op: "Patch", URL: "https://localhost", Err: io.ErrUnexpectedEOF}, "connection",
		ClusterDown, later},
	"incomplete response": {fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w",
		io.ErrUnexpectedEOF), "connection", ClusterDown, later},
	"lost connection": {errors.New("http2: client connection lost"), "connection", ClusterDown, later},
	"timeout of the request": {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.DeadlineExceeded},
		"connection", ClusterDown, later},
	"cancelled request": {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.Canceled}, "unknown",
		PayloadFailed, never},
	"kind not served": {fmt.Errorf("no kind Thing: %w", cluster.ErrNotServed), "kind not served",
		ResourceTypeMissing, whileNew},
	"unavailable API": {&cluster.UnknownKind{Err: errors.New("stale")}, "kind of an unavailable server", ClusterDown,
		later},
	"old schema": {answered(http.StatusInternalServerError,
		"failed to create typed patch object (NS/hat; v1, Kind=Thing): .spec.size: field not declared in schema"),
		"unknown field", ResourceInvalid, whileNew},
	"own refusal": {refusal{ResourceInvalid, "it is in no namespace"}, "own refusal", ResourceInvalid, never},
	"422": {apierrors.NewInvalid(schema.GroupKind{Group: things.Group, Kind: "Thing"}, "hat", nil),
		"invalid", ResourceInvalid, justAfter},
	"unknown error": {errors.New("strange"), "unknown", PayloadFailed, never},
}

func TestCausesAndRetriesOfFailures(t *testing.T) {
	release := releaseOf(t, "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
	for name, row := range causeRows {
		t.Run(name, func(t *testing.T) {
			found := causeOf(row.err)
			if found.name != row.row || found.retry != row.retry {
				t.Errorf("got cause %q, retry %s; want %q, %s", found.name, found.retry, row.row, row.retry)
			}
			if failure := NewFailure(release.Manifests[0], row.err); failure.Reason != row.reason {
				t.Errorf("got reason %s, want %s", failure.Reason, row.reason)
			}
		})
	}
}

// A failure of a server that may not have seen a definition yet is retried only if this run has just written the
// definition.
func TestFailuresOfRecentWritesAreRetriedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := releaseOf(t,
			"{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
		a := applierOf(t)
		hat := release.Manifests[0]
		notFound := causeRows["404 of a path"].err
		if a.IsRetryable(hat, notFound) {
			t.Error("got a retry, though the run has not written the definition")
		}
		a.served.written.Store("shop.example.com", time.Now())
		if !a.IsRetryable(hat, notFound) || a.IsRetryable(hat, causeRows["400"].err) {
			t.Error("got no retry, though the definition was just written")
		}
		invalid := causeRows["422"].err
		if !a.IsRetryable(hat, invalid) {
			t.Error("got no retry, though the server may still use the old definition")
		}
		<-time.After(justAfterFor)
		if a.IsRetryable(hat, invalid) || !a.IsRetryable(hat, notFound) {
			t.Error("got a retry, though every server uses the new definition by now")
		}
		<-time.After(newFor)
		if a.IsRetryable(hat, notFound) {
			t.Error("got a retry, though the definition was written long ago")
		}
	})
}

// applierOf returns an Applier without a cluster.
func applierOf(t *testing.T) *Applier {
	t.Helper()
	c, err := cluster.Connect(&rest.Config{Host: "https://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	return New(t.Context(), c, nil, Options{Journal: NewJournal(nil, &record.Record{})}, Handler{})
}

// releaseOf returns a payload of one file.
func releaseOf(t *testing.T, text string) *payload.Payload {
	t.Helper()
	release, _, err := payload.Load(t.Context(), fstest.MapFS{"0000_10_web.yaml": {Data: []byte(text)}},
		payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// A Namespace has no immutable field today, so a real server can't return this error.
func TestNamespaceIsNeverRecreated(t *testing.T) {
	m := releaseOf(t,
		`{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {runlevel.dev/recreate: "true"}}}`).
		Manifests[0]
	_, err := applierOf(t).recreate(&liveObject{Manifest: m, resource: cluster.Resource{Kind: "Namespace"}},
		[]string{"spec"})
	want := "spec can't be changed, and to recreate a Namespace would lose all that is in it: runlevel.dev/recreate " +
		"does not hold for it"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}
