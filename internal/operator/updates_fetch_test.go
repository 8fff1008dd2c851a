package operator

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/updateservice"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// TestTheUpdateServiceIsAskedAgain follows a service that answers, hangs and fails for hours, by a clock of the test.
func TestTheUpdateServiceIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		requested, notified := 0, 0
		answer := func(context.Context) (*clusterversion.Offer, error) {
			return &clusterversion.Offer{Updates: []configv1.Release{{Version: "1.0.1"}}}, nil
		}
		u := newUpdates(true, func() { notified++ })
		u.fetch = func(ctx context.Context, _ updateservice.Query) (*clusterversion.Offer, error) {
			requested++
			return answer(ctx)
		}
		go func() { _ = u.run(ctx) }()
		v := &configv1.ClusterVersion{}
		applied := &clusterversion.AppliedRelease{Release: configv1.Release{Version: "1.0.0"}}
		if u.follow(v, nil) != nil || !u.follow(v, applied).IsPending {
			t.Error("there are updates before the first response")
		}
		synctest.Wait()
		begun := time.Now()
		if known := u.follow(v, applied); known.IsPending || len(known.Offer.Updates) != 1 ||
			!known.Time.Equal(begun) || notified != 1 {
			t.Errorf("after the first answer: %+v", known)
		}

		answer = func(context.Context) (*clusterversion.Offer, error) {
			return nil, &reason.Error{Reason: "RemoteFailed", Message: "away"}
		}
		<-time.After(4 * time.Hour)
		synctest.Wait()
		if known := u.follow(v, applied); reason.Of(known.Err) != "RemoteFailed" || len(known.Offer.Updates) != 1 ||
			!known.Time.Equal(begun) {
			t.Errorf("after hours of silence: %+v", known)
		}
		if requested < 60 || requested > 121 {
			t.Errorf("update service got %d requests in 4 hours", requested)
		}

		hangs := make(chan error, 2) // the second one when the test ends
		answer = func(ctx context.Context) (*clusterversion.Offer, error) {
			<-ctx.Done()
			hangs <- ctx.Err()
			return nil, errors.New("too late")
		}
		v.Spec.Channel = "slow"
		if known := u.follow(v, applied); !known.IsPending || known.Offer != nil {
			t.Errorf("what another channel offers: %+v", known)
		}
		synctest.Wait()
		v.Spec.Channel = "stable"
		u.follow(v, applied)
		synctest.Wait()
		if len(hangs) != 1 || !u.follow(v, applied).IsPending {
			t.Error("a service that hangs holds up the next question")
		}
		cancel()
		synctest.Wait()
	})
}

// TestInheritedUpdatesAreNoAnswer restarts an operator whose update service is down. The operator keeps the list of its
// status, and does not report a response of the service.
func TestInheritedUpdatesAreNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := error(&reason.Error{Reason: "RemoteFailed", Message: "away"})
		u := newUpdates(true, func() {})
		u.fetch = func(context.Context, updateservice.Query) (*clusterversion.Offer, error) {
			return &clusterversion.Offer{}, err
		}
		go func() { _ = u.run(ctx) }()
		v := &configv1.ClusterVersion{Status: configv1.ClusterVersionStatus{
			Desired: configv1.Release{Version: "1.0.0"}, AvailableUpdates: []configv1.Release{{Version: "1.0.1"}},
		}}
		applied := &clusterversion.AppliedRelease{Release: configv1.Release{Version: "1.0.0"}}
		u.follow(v, applied)
		synctest.Wait()
		if known := u.follow(v, applied); known.Err == nil || known.Offer == nil || len(known.Offer.Updates) != 1 {
			t.Errorf("the list of the status is lost: %+v", known)
		}
		if last := u.lastAnswer(); !last.IsZero() {
			t.Errorf("a service that has never answered has last answered at %s", last)
		}
		err = nil
		<-time.After(2 * fetchEvery)
		synctest.Wait()
		if u.lastAnswer().IsZero() {
			t.Error("the first answer is not noticed")
		}
		cancel()
		synctest.Wait()
	})
}

// TestTheUpdateServiceIsAskedOverTLS asks a service whose authority the environment names, as registries are asked, and
// one that sends the operator on to plain http.
func TestTheUpdateServiceIsAskedOverTLS(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, plain.URL, http.StatusFound)
		}
		fmt.Fprint(w, `{"nodes": [{"version": "1.0.0"}]}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	fetch := func(path string) string {
		query := updateservice.Query{
			URL:          server.URL + path,
			Channel:      "stable",
			Version:      "1.0.0",
			Architecture: architecture,
		}
		_, err := newUpdates(false, nil).fetch(t.Context(), query)
		return fmt.Sprint(err)
	}
	if got := fetch("/"); !strings.Contains(got, "certificate signed by unknown authority") {
		t.Errorf("of an unknown authority: %s", got)
	}
	authority := filepath.Join(t.TempDir(), "authority.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", authority)
	if got := fetch("/"); got != "<nil>" {
		t.Errorf("of a trusted authority: %s", got)
	}
	if got := fetch("/elsewhere"); !strings.Contains(got, "answers only plain http") {
		t.Errorf("sent on to plain http: %s", got)
	}
}
