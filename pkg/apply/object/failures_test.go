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

// answered is an answer with nothing but a code and a text, as client-go reads it.
func answered(code int, text string) error {
	return apierrors.NewGenericServerResponse(code, "patch", things, "hat", text, 0, true)
}

// causeRows are failures that a test can't make a real server answer with at will: those
// that it can are in failures_permanent_test.go and failures_transient_test.go.
var causeRows = map[string]struct {
	err    error
	row    string
	reason string
	retry  retry
}{
	"conflict": {apierrors.NewConflict(things, "hat", errors.New("the object has been modified")),
		"another client wrote at the same time", ResourceConflict, later},
	"race of creators": {apierrors.NewAlreadyExists(things, "hat"), "made by another client at the same time",
		ResourceNotFound, later},
	"timeout": {apierrors.NewTimeoutError("the request did not complete within 60s", 0),
		"server that is not up", ClusterDown, later},
	"server timeout": {apierrors.NewServerTimeout(things, "patch", 2), "too many requests", ClusterOverloaded, later},
	"429":            {apierrors.NewTooManyRequests("slow down", 7), "too many requests", ClusterOverloaded, later},
	"429 in plain text": {answered(http.StatusTooManyRequests, "Too many requests, please try again later."),
		"too many requests", ClusterOverloaded, later},
	"500": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "server error", ClusterError, later},
	"500 with no reason": {answered(http.StatusInternalServerError, "oops"), "server that is not up", ClusterDown,
		later},
	"502": {answered(http.StatusBadGateway, "bad gateway"), "server that is not up", ClusterDown, later},
	"503": {apierrors.NewServiceUnavailable("the server is currently unable to handle the request"),
		"server that is not up", ClusterDown, later},
	"504": {answered(http.StatusGatewayTimeout, "gateway timeout"), "server that is not up", ClusterDown, later},
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
		errors.New("status unknown for quota: few, resources: services")), "quota that is not computed yet",
		ResourceForbidden, later},
	"kind being deleted, as servers say today": {apierrors.NewForbidden(things, "hat",
		errors.New("create not allowed while custom resource definition is terminating")),
		"definition that is being deleted", ResourceTypeMissing, later},
	"kind being deleted": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusMethodNotAllowed,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: "create not allowed while custom resource definition is terminating"}},
		"definition that is being deleted", ResourceTypeMissing, later},
	"refused connection": {&url.Error{
		Op:  "Patch",
		URL: "https://localhost",
		Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")},
	}, "connection", ClusterDown, later},
	"connection cut": {&url.Error{Op: "Patch", URL: "https://localhost", Err: io.ErrUnexpectedEOF}, "connection",
		ClusterDown, later},
	"half an answer": {fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w",
		io.ErrUnexpectedEOF), "connection", ClusterDown, later},
	"lost connection": {errors.New("http2: client connection lost"), "connection", ClusterDown, later},
	"no answer in time": {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.DeadlineExceeded},
		"connection", ClusterDown, later},
	"cut off by us": {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.Canceled}, "unknown",
		PayloadFailed, never},
	"kind not served": {fmt.Errorf("no kind Thing: %w", cluster.ErrNotServed), "kind that is not served",
		ResourceTypeMissing, whileNew},
	"API that is down": {&cluster.UnknownKind{Err: errors.New("stale")}, "kind of a server that is not up", ClusterDown,
		later},
	"old schema": {answered(http.StatusInternalServerError,
		"failed to create typed patch object (NS/hat; v1, Kind=Thing): .spec.size: field not declared in schema"),
		"unknown field", ResourceInvalid, whileNew},
	"ours": {refusal{ResourceInvalid, "it is in no namespace"}, "ours", ResourceInvalid, never},
	"422": {apierrors.NewInvalid(schema.GroupKind{Group: things.Group, Kind: "Thing"}, "hat", nil),
		"invalid", ResourceInvalid, justAfter},
	"what nobody knows": {errors.New("strange"), "unknown", PayloadFailed, never},
}

func TestRemedies(t *testing.T) {
	release := releaseOf(t, "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
	for name, row := range causeRows {
		t.Run(name, func(t *testing.T) {
			found := causeOf(row.err)
			if found.name != row.row || found.retry != row.retry {
				t.Errorf("it is %q and is tried again %s, want %q, %s", found.name, found.retry, row.row, row.retry)
			}
			if failure := NewFailure(release.Manifests[0], row.err); failure.Reason != row.reason {
				t.Errorf("the reason is %s, want %s", failure.Reason, row.reason)
			}
		})
	}
}

// What another of the cluster's servers may not have seen yet, heals only where this run
// has just written its definition.
func TestWhatThisRunHasWrittenHealsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := releaseOf(t,
			"{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
		a := applierOf(t)
		hat := release.Manifests[0]
		notFound := causeRows["404 of a path"].err
		if a.IsRetryable(hat, notFound) {
			t.Error("nobody has written the definition")
		}
		a.served.written.Store("shop.example.com", time.Now())
		if !a.IsRetryable(hat, notFound) || a.IsRetryable(hat, causeRows["400"].err) {
			t.Error("the definition was just written")
		}
		invalid := causeRows["422"].err
		if !a.IsRetryable(hat, invalid) {
			t.Error("the server may still go by the definition that was")
		}
		<-time.After(justAfterFor)
		if a.IsRetryable(hat, invalid) || !a.IsRetryable(hat, notFound) {
			t.Error("by now every server goes by the new definition")
		}
		<-time.After(newFor)
		if a.IsRetryable(hat, notFound) {
			t.Error("the definition was written long ago")
		}
	})
}

// applierOf is an Applier with no cluster behind it.
func applierOf(t *testing.T) *Applier {
	t.Helper()
	c, err := cluster.Connect(&rest.Config{Host: "https://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	return New(t.Context(), c, nil, Options{Journal: NewJournal(nil, &record.Record{})}, Handler{})
}

// releaseOf is a payload of one file.
func releaseOf(t *testing.T, text string) *payload.Payload {
	t.Helper()
	release, _, err := payload.Load(t.Context(), fstest.MapFS{"0000_10_web.yaml": {Data: []byte(text)}},
		payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// No field of a Namespace is fixed today, so no server can be made to say it.
func TestNamespaceIsNeverMadeAnew(t *testing.T) {
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
