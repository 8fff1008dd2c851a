package rehearse_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestUnreadableDeletesAreReported is a finding: nothing shows that it ends.
func TestUnreadableDeletesAreReported(t *testing.T) {
	t.Parallel()
	const name = "0000_10_shop_01_config.yaml"
	old := fstest.MapFS{name: {Data: []byte(
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, finalizers: [example.com/hold]}}`,
	)}}
	deleted := fstest.MapFS{name: {Data: []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, annotations: {release.openshift.io/delete: "true"}}}`)}}
	// what fails once all is applied, in a path with $ at its end; and the finding
	for failing, want := range map[string]string{
		"nothing":                              "its delete does not end: ",
		"/namespaces/shop/configmaps/settings": "cannot determine whether its delete ends: ",
		"/configmaps$":                         "its delete does not end: ",
		"/configmaps/runlevel-release-":        "cannot determine whether all deletes end: ",
	} {
		t.Run(failing, func(t *testing.T) {
			t.Parallel()
			s := sandboxtest.Start(t, sandbox.Options{})
			var isFailing atomic.Bool
			config := sandboxtest.Before(s.Config, func(r *http.Request) error {
				if isFailing.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path+"$", failing) {
					return apierrors.NewInternalError(errors.New("no leader"))
				}
				return nil
			})
			report, err := rehearse.On(t.Context(), config, rehearse.Options{
				Old: parse(t, old, "1.0.0"), New: parse(t, deleted, "1.0.1"), Patience: 2 * time.Second,
				Progress: func(line string) {
					if strings.HasPrefix(line, "apply again 1.0.1: ") && strings.HasSuffix(line, " s") {
						isFailing.Store(true)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			isFound := func(o lint.Observation) bool {
				return o.Rule == lint.RehearsalPending && strings.HasPrefix(o.Message, want)
			}
			if !slices.ContainsFunc(report.Observations, isFound) {
				t.Errorf("found %+v, want %q", report.Observations, want)
			}
		})
	}
}
