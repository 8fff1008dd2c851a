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

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
)

var things = schema.GroupResource{Group: "shop.example.com", Resource: "things"}

// answered is an answer with nothing but a code and a text, as client-go reads it.
func answered(code int, text string) error {
	return apierrors.NewGenericServerResponse(code, "patch", things, "hat", text, 0, true)
}

// remedyRows are failures that a test can't make a real server answer with at will: those
// that it can are in never_test.go and heals_test.go.
var remedyRows = map[string]struct {
	err    error
	row    string
	reason string
	heals  healing
}{
	"conflict":           {apierrors.NewConflict(things, "hat", errors.New("the object has been modified")), "somebody else wrote at the same time", ResourceConflict, byItself},
	"race of creators":   {apierrors.NewAlreadyExists(things, "hat"), "made by somebody else at the same time", ResourceNotFound, byItself},
	"timeout":            {apierrors.NewTimeoutError("the request did not complete within 60s", 0), "server that is not up", ClusterDown, byItself},
	"server timeout":     {apierrors.NewServerTimeout(things, "patch", 2), "too many requests", ClusterOverloaded, byItself},
	"429":                {apierrors.NewTooManyRequests("slow down", 7), "too many requests", ClusterOverloaded, byItself},
	"429 in plain text":  {answered(http.StatusTooManyRequests, "Too many requests, please try again later."), "too many requests", ClusterOverloaded, byItself},
	"500":                {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), "server error", ClusterError, byItself},
	"500 with no reason": {answered(http.StatusInternalServerError, "oops"), "server that is not up", ClusterDown, byItself},
	"502":                {answered(http.StatusBadGateway, "bad gateway"), "server that is not up", ClusterDown, byItself},
	"503":                {apierrors.NewServiceUnavailable("the server is currently unable to handle the request"), "server that is not up", ClusterDown, byItself},
	"504":                {answered(http.StatusGatewayTimeout, "gateway timeout"), "server that is not up", ClusterDown, byItself},
	"404 of a path":      {answered(http.StatusNotFound, "404 page not found"), "not found", ResourceNotFound, inThisRun},
	"401":                {apierrors.NewUnauthorized("Unauthorized"), "not logged in", ClusterUnauthorized, never},
	"405":                {apierrors.NewMethodNotSupported(things, "patch"), "malformed", ResourceInvalid, never},
	"400":                {apierrors.NewBadRequest("unexpected end of JSON"), "malformed", ResourceInvalid, never},
	"413":                {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "too large", ResourceInvalid, never},
	"too large for etcd": {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), "too large", ResourceInvalid, never},
	"quota not computed": {apierrors.NewForbidden(things, "hat", errors.New("status unknown for quota: few, resources: services")), "quota that is not computed yet", ResourceForbidden, byItself},
	"kind being deleted": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "create not allowed while custom resource definition is terminating"}}, "definition that is being deleted", ResourceTypeMissing, byItself},
	"refused connection": {&url.Error{Op: "Patch", URL: "https://localhost", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, "connection", ClusterDown, byItself},
	"connection cut":     {&url.Error{Op: "Patch", URL: "https://localhost", Err: io.ErrUnexpectedEOF}, "connection", ClusterDown, byItself},
	"half an answer":     {fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", io.ErrUnexpectedEOF), "connection", ClusterDown, byItself},
	"lost connection":    {errors.New("http2: client connection lost"), "connection", ClusterDown, byItself},
	"no answer in time":  {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.DeadlineExceeded}, "connection", ClusterDown, byItself},
	"cut off by us":      {&url.Error{Op: "Patch", URL: "https://localhost", Err: context.Canceled}, "unknown", PayloadFailed, never},
	"kind not served":    {fmt.Errorf("no kind Thing: %w", cluster.ErrNotServed), "kind that is not served", ResourceTypeMissing, inThisRun},
	"API that is down":   {&cluster.UnknownKind{Err: errors.New("stale")}, "kind of a server that is not up", ClusterDown, byItself},
	"old schema":         {answered(http.StatusInternalServerError, "failed to create typed patch object (NS/hat; v1, Kind=Thing): .spec.size: field not declared in schema"), "unknown field", ResourceInvalid, inThisRun},
	"ours":               {refusal{ResourceInvalid, "it is in no namespace"}, "ours", ResourceInvalid, never},
	"422":                {apierrors.NewInvalid(schema.GroupKind{Group: things.Group, Kind: "Thing"}, "hat", nil), "invalid", ResourceInvalid, atFirst},
	"what nobody knows":  {errors.New("strange"), "unknown", PayloadFailed, never},
}

func TestRemedies(t *testing.T) {
	release := releaseOf(t, "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
	for name, row := range remedyRows {
		t.Run(name, func(t *testing.T) {
			found := remedyFor(row.err)
			if found.name != row.row || found.heals != row.heals {
				t.Errorf("it is %q and heals %s, want %q, %s", found.name, found.heals, row.row, row.heals)
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
		release := releaseOf(t, "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}")
		a := applierOf(t)
		hat := release.Manifests[0]
		notFound := remedyRows["404 of a path"].err
		if a.Heals(hat, notFound) {
			t.Error("nobody has written the definition")
		}
		a.written.Store("shop.example.com", time.Now())
		if !a.Heals(hat, notFound) || a.Heals(hat, remedyRows["400"].err) {
			t.Error("the definition was just written")
		}
		invalid := remedyRows["422"].err
		if !a.Heals(hat, invalid) {
			t.Error("the server may still go by the definition that was")
		}
		<-time.After(atFirstFor)
		if a.Heals(hat, invalid) || !a.Heals(hat, notFound) {
			t.Error("by now every server goes by the new definition")
		}
		<-time.After(inThisRunFor)
		if a.Heals(hat, notFound) {
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
	release, _, err := payload.Load(t.Context(), fstest.MapFS{"0000_10_web.yaml": {Data: []byte(text)}}, payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// No field of a Namespace is fixed today, so no server can be made to say it.
func TestNamespaceIsNeverMadeAnew(t *testing.T) {
	m := releaseOf(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {runlevel.dev/recreate: "true"}}}`).Manifests[0]
	_, err := applierOf(t).recreate(&target{Manifest: m, resource: cluster.Resource{Kind: "Namespace"}}, []string{"spec"})
	want := "spec can't be changed, and to make a Namespace anew would lose all that is in it: runlevel.dev/recreate does not hold for it"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}
