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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/updateservice"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/internal/updates/phase"
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

// TestUpdatesOpenAsTimePasses follows two ramps by a clock of the test, while the service does not answer any more.
func TestUpdatesOpenAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begun := time.Now()
		ramp := phase.Ramp{Start: metav1.NewTime(begun), Duration: metav1.Duration{Duration: 48 * time.Hour}}
		phased := func(version string, p phase.Phase) (update clusterversion.PhasedUpdate) {
			update.Release.Version, update.Phase = version, p
			return update
		}
		offer := &clusterversion.Offer{
			Updates: []configv1.Release{{Version: "1.0.1"}},
			Ahead:   time.Hour,
			Phased: []clusterversion.PhasedUpdate{
				phased("1.0.4", phase.Phase{Halt: "3 of 40 clusters failed"}),
				phased("1.0.3", phase.Phase{Ramp: ramp}),
				phased("1.0.2", phase.Phase{Rings: map[string]phase.Ramp{"early": ramp}}),
			},
		}
		u := newUpdates(true, func() {})
		u.fetch = func(context.Context, updateservice.Query) (*clusterversion.Offer, error) {
			defer func() { offer = nil }()
			if offer == nil {
				return nil, &reason.Error{Reason: "RemoteFailed", Message: "away"}
			}
			return offer, nil
		}
		go func() { _ = u.run(ctx) }()
		v := &configv1.ClusterVersion{}
		v.Annotations = map[string]string{warinessAnnotation: "0.5"}
		applied := &clusterversion.AppliedRelease{Release: configv1.Release{Version: "1.0.0"}}
		check := func(when string, updates int, opensIn time.Duration, problem string, notOpen ...string) {
			t.Helper()
			u.follow(v, applied)
			synctest.Wait()
			got := u.follow(v, applied)
			isSame := slices.Equal(got.Offer.NotOpen, notOpen)
			if len(got.Offer.Updates) != updates || !isSame || got.Problem != problem {
				t.Errorf("%s: %d updates, not open %q, problem %q", when, len(got.Offer.Updates), got.Offer.NotOpen,
					got.Problem)
			}
			if opensIn == 0 && !got.OpensAt.IsZero() || opensIn > 0 && !got.OpensAt.Equal(begun.Add(opensIn)) {
				t.Errorf("%s: the next update opens at %s", when, got.OpensAt)
			}
		}
		const halted = "1.0.4 is halted: 3 of 40 clusters failed"
		const paused = "1.0.2 does not open for this cluster: its ramp is paused, or has no start yet"
		check("at first", 1, 25*time.Hour, "", halted, "1.0.3 opens for this cluster at 2000-01-02T00:00:00Z", paused)
		v.Annotations[warinessAnnotation] = "0.25"
		check("less wary", 1, 13*time.Hour, "", halted, "1.0.3 opens for this cluster at 2000-01-01T12:00:00Z", paused)
		v.Labels = map[string]string{ringLabel: "late"}
		check("a ring without a ramp", 1, 13*time.Hour, "", halted,
			"1.0.3 opens for this cluster at 2000-01-01T12:00:00Z",
			paused+` (by the ramp of clusters without a ring, because it has none for ring "late")`)
		v.Labels[ringLabel] = "early"
		check("in a ring", 1, 13*time.Hour, "", halted, "1.0.3 opens for this cluster at 2000-01-01T12:00:00Z",
			"1.0.2 opens for this cluster at 2000-01-01T12:00:00Z")
		<-time.After(13 * time.Hour)
		check("at its turn", 3, 0, "", halted)
		if last := u.last(); len(last.Offer.Updates) != 3 || last.Err == nil {
			t.Errorf("the last updates are %+v", last)
		}
		v.Annotations[warinessAnnotation] = "1"
		check("wary", 1, 49*time.Hour, "", halted, "1.0.3 opens for this cluster at 2000-01-03T00:00:00Z",
			"1.0.2 opens for this cluster at 2000-01-03T00:00:00Z")
		for _, bad := range []string{"often", "1.1", "-0.1", "NaN", ""} {
			v.Annotations[warinessAnnotation] = bad
			got := u.follow(v, applied).Problem
			if !strings.HasPrefix(got, "The annotation runlevel.dev/wariness: Invalid value: ") {
				t.Errorf("of %q: %s", bad, got)
			}
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
