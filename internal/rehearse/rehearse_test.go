package rehearse_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/sandbox"
)

var update = flag.Bool("update", false, "write what rehearsals find")

// small is a release that needs a moment.
var small = fstest.MapFS{"0000_10_shop_01_config.yaml": {Data: []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}`)}}

// running returns the state of a sandbox; nil if there is none.
func running(t *testing.T, name string) *sandbox.Status {
	t.Helper()
	all, err := sandbox.List()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(s sandbox.Status) bool { return s.Name == name && s.Failure == "" })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// TestInterrupted: a rehearsal that is interrupted leaves no control plane.
func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	ctrlC := errors.New("interrupted")
	report, err := rehearse.Run(ctx, rehearse.Options{
		New: parse(t, small, "1.0.0"), Sandbox: sandbox.Options{Name: "rehearse-interrupted"}, Progress: func(string) { interrupt(ctrlC) },
	})
	if report != nil || !errors.Is(err, ctrlC) {
		t.Errorf("it ends with %v, %v", report, err)
	}
	if left := running(t, "rehearse-interrupted"); left != nil {
		t.Errorf("it leaves %+v", left)
	}
}

// TestControlPlaneEnds: if the API server ends, that is the error, and nothing is found in the release.
func TestControlPlaneEnds(t *testing.T) {
	report, err := rehearse.Run(t.Context(), rehearse.Options{
		New: parse(t, small, "1.0.0"), Sandbox: sandbox.Options{Name: "rehearse-ends"}, Progress: func(string) {
			for _, component := range running(t, "rehearse-ends").Components {
				if component.Name == sandbox.APIServer && component.PID > 0 {
					_ = syscall.Kill(component.PID, syscall.SIGKILL)
				}
			}
		},
	})
	if report != nil || err == nil || !strings.Contains(err.Error(), "the control plane of the rehearsal has ended") {
		t.Errorf("it ends with %v, %v", report, err)
	}
}
