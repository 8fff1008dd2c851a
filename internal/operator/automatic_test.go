package operator_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// serveUpdates serves a graph in which each version leads to all later ones, and has a channel follow it. The last
// field is another one of the graph, such as phasedEdges; versions that have a phase have no plain edges.
func (s *stage) serveUpdates(g *graphServer, channel, phased string, releases ...string) {
	s.t.Helper()
	var nodes, edges []string
	for i := 0; i < len(releases); i += 2 {
		nodes = append(nodes, fmt.Sprintf(`{"version": %q, "payload": %q}`, releases[i], releases[i+1]))
		for before := range i / 2 {
			if !strings.Contains(phased, fmt.Sprintf("%q", releases[i])) {
				edges = append(edges, fmt.Sprintf("[%d, %d]", before, i/2))
			}
		}
	}
	g.mu.Lock()
	g.graph = fmt.Sprintf(`{"nodes": [%s], "edges": [%s]%s}`, strings.Join(nodes, ","), strings.Join(edges, ","), phased)
	g.mu.Unlock()
	s.specify(func(spec *configv1.ClusterVersionSpec) {
		spec.Upstream, spec.Channel = configv1.URL(g.URL), channel
	})
}

// annotate sets annotations of the ClusterVersion; an empty value removes one.
func (s *stage) annotate(namesAndValues ...string) {
	s.t.Helper()
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	for i := 0; i < len(namesAndValues); i += 2 {
		v.Annotations[namesAndValues[i]] = namesAndValues[i+1]
		if namesAndValues[i+1] == "" {
			delete(v.Annotations, namesAndValues[i])
		}
	}
	s.must(s.client.Patch(s.t.Context(), v, patch))
}

// hasMessage returns a test of the message of a condition.
func hasMessage(kind configv1.ClusterStatusConditionType, text string) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool { return strings.Contains(find(v, kind).Message, text) }
}

// announced returns the messages of events of a reason.
func (s *stage) announced(reason string) string {
	s.t.Helper()
	var events corev1.EventList
	s.must(s.client.List(s.t.Context(), &events, client.InNamespace("default")))
	var all []string
	for _, event := range events.Items {
		if event.Reason == reason {
			all = append(all, event.Message)
		}
	}
	return strings.Join(all, "\n")
}

// TestAClusterUpdatesItself follows a ramp until it opens a patch for the cluster, waits for a window, and takes the
// patch; it does not take a minor version.
func TestAClusterUpdatesItself(t *testing.T) {
	t.Parallel()
	const ring, wariness = "runlevel.dev/ring", "runlevel.dev/wariness"
	service := newGraphServer(t)
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	start := time.Now().Add(-30 * time.Minute)
	phased := fmt.Sprintf(`, "phasedEdges": [{"edges": [{"from": "1.0.0", "to": "1.0.1"}],
		"ramp": {"start": %q, "duration": "1h"}, "rings": {"late": {}}}]`, start.UTC().Format(time.RFC3339))
	s.annotate(wariness, "1", automatic.UpdatesAnnotation, "patch")
	s.serveUpdates(service, "stable", phased, "1.0.0", s.options.Payload, "1.0.1", s.push("1.0.1", shop), "1.1.0",
		s.push("1.1.0", shop))
	s.until("the wary cluster waits", hasMessage(configv1.RetrievedUpdates, "1.0.1 opens for this cluster at "+
		start.Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")))
	waits := s.until("no patch is available", has(clusterversion.AutomaticUpdates, configv1.ConditionTrue, "NoUpdate"))
	if !offers("1.1.0")(waits) {
		t.Errorf("a closed update is listed\n%s", s.text())
	}
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	v.Labels = map[string]string{ring: "late"}
	s.must(s.client.Patch(t.Context(), v, patch))
	s.until("the ring of the cluster is closed",
		hasMessage(configv1.RetrievedUpdates, "1.0.1 does not open for this cluster"))
	v = s.version()
	patch = client.MergeFrom(v.DeepCopy())
	v.Labels = nil
	s.must(s.client.Patch(t.Context(), v, patch))

	later := time.Now().UTC().Add(48 * time.Hour).Format("Mon")
	s.annotate(wariness, fmt.Sprint((time.Since(start) + 3*time.Second).Hours()),
		automatic.WindowsAnnotation, later+" 10:00-11:00 UTC")
	s.until("the ramp opens the patch", offers("1.1.0, 1.0.1"))
	s.until("it waits for the window",
		hasMessage(clusterversion.AutomaticUpdates, "Updates itself to 1.0.1 in the window from 20"))
	if got := s.version().Spec.DesiredUpdate; got != nil {
		t.Errorf("outside the window, %+v is requested", got)
	}
	s.annotate(automatic.WindowsAnnotation, "daily 25:00-26:00")
	s.until("a bad window is named",
		has(clusterversion.AutomaticUpdates, configv1.ConditionFalse, "InvalidAnnotations"))
	s.annotate(automatic.WindowsAnnotation, "daily 00:00-24:00")
	s.until("it takes the patch", isAt("1.0.1"))
	s.until("it takes no minor version", hasMessage(clusterversion.AutomaticUpdates, "No patch update is available"))
	s.until("the request is withdrawn", requestsNothing)
	if got := s.announced("AutomaticUpdate"); got != "Updates itself to 1.0.1" {
		t.Errorf("events: %q", got)
	}
	s.annotate(automatic.UpdatesAnnotation, "minor")
	s.until("it takes the minor version", isAt("1.1.0"))
	s.waitForPreflight(service)
	s.annotate(automatic.UpdatesAnnotation, "")
	s.until("the condition ends", has(clusterversion.AutomaticUpdates, "", ""))
}

// waitForPreflight has a cluster at 1.1.0 wait while the preflight of a version fails, and take a later one.
func (s *stage) waitForPreflight(service *graphServer) {
	s.t.Helper()
	current := s.version().Status.Desired.Image
	bad, good := s.push("1.1.1", shop+refusedService), s.push("1.1.2", shop)
	s.serveUpdates(service, "bad", "", "1.1.0", current, "1.1.1", bad)
	s.until("the preflight fails", has(clusterversion.AutomaticUpdates, configv1.ConditionFalse, "FailedPreflight"))
	waits := s.until("it waits", hasMessage(clusterversion.AutomaticUpdates,
		"No automatic update to 1.1.1 until its preflight passes: Preflight of version=\"1.1.1\" image="))
	if !requestsNothing(waits) || waits.Status.History[0].Version != "1.1.0" || !offers("1.1.1")(waits) {
		s.t.Errorf("the update has begun, or is not listed\n%s", s.text())
	}
	if got := s.announced("AutomaticPreflightFailed"); !strings.Contains(got, "the cluster refuses 1 object") {
		s.t.Errorf("events: %q", got)
	}
	s.serveUpdates(service, "good", "", "1.1.0", current, "1.1.1", bad, "1.1.2", good)
	s.until("it takes the later version", isAt("1.1.2"))
	s.until("the request is withdrawn", requestsNothing)
}

// requestsNothing is a test of there being no request of a release.
func requestsNothing(v *configv1.ClusterVersion) bool {
	return v.Spec.DesiredUpdate == nil || v.Spec.DesiredUpdate.Image == "" && v.Spec.DesiredUpdate.Version == ""
}

// A reportServer keeps the reports that it gets.
type reportServer struct {
	*httptest.Server
	mu  sync.Mutex
	all []report.Report
}

func newReportServer(t *testing.T) *reportServer {
	server := &reportServer{}
	server.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, err := report.Parse(body)
		server.mu.Lock()
		defer server.mu.Unlock()
		if err != nil {
			t.Error("a report is not valid:", err)
			return
		}
		server.all = append(server.all, *got)
	}))
	t.Cleanup(server.Close)
	return server
}

// has reports whether there is a report of a condition and a version.
func (r *reportServer) has(condition report.Condition, version string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all, func(got report.Report) bool {
		return got.Condition == condition && got.Version == version && got.ID == r.all[0].ID
	})
}

// TestAClusterGoesBackByItself from an incomplete update, and does not take that version again until
// a person asks for it. The request of the person stays.
func TestAClusterGoesBackByItself(t *testing.T) {
	t.Parallel()
	service := newGraphServer(t)
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	broken := s.push("1.0.1", shop+till)
	reports := newReportServer(t)
	s.annotate(automatic.UpdatesAnnotation, "patch", automatic.RollbackAnnotation, "5s",
		"runlevel.dev/report-updates", reports.URL+"/reports")
	s.serveUpdates(service, "stable", "", "1.0.0", s.options.Payload, "1.0.1", broken)
	s.until("it has rolled back", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.0")(v) && len(v.Status.History) == 3 && v.Status.History[1].Version == "1.0.1"
	})
	s.until("it does not take the version again",
		hasMessage(clusterversion.AutomaticUpdates, "No patch update is available: 1.0.1 was rolled back before"))
	s.until("the request is withdrawn", requestsNothing)
	s.await("the rollback is reported", func() bool { return reports.has(report.RolledBack, "1.0.1") })
	if got := s.announced("AutomaticRollback"); !strings.HasPrefix(got, "Goes back from 1.0.1 to 1.0.0 after 5s: ") {
		t.Errorf("events: %q", got)
	}

	s.ask(&configv1.Update{Version: "1.0.1"})
	s.report("till", "1.0.1")
	s.until("a person takes it", isAt("1.0.1"))
	s.await("the update is reported", func() bool { return reports.has(report.Succeeded, "1.0.1") })
	if id := string(s.version().Spec.ClusterID); strings.Contains(fmt.Sprint(reports.all), id) {
		t.Error("reports have the ID of the cluster")
	}
	s.serveUpdates(service, "fast", "", "1.0.0", s.options.Payload, "1.0.1", broken, "1.0.2",
		s.push("1.0.2", shop+till))
	s.until("the next update is listed", offers("1.0.2"))
	s.until("the request of the person stays",
		hasMessage(clusterversion.AutomaticUpdates, "the request of a user (set by "))
	if got := s.version(); got.Spec.DesiredUpdate == nil || got.Spec.DesiredUpdate.Version != "1.0.1" {
		t.Errorf("the request of the person is %+v", got.Spec.DesiredUpdate)
	}
	s.ask(&configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "SlowDisks"}}})
	s.until("it takes the next update", func(v *configv1.ClusterVersion) bool {
		return v.Status.Desired.Version == "1.0.2"
	})
	s.report("till", "1.0.2")
	s.until("updated", isAt("1.0.2"))
	done := s.until("the request is withdrawn", requestsNothing)
	if got := done.Spec.DesiredUpdate; got == nil || len(got.AcceptRisks) != 1 {
		t.Errorf("the accepted risks are lost: %+v", got)
	}
}

// updateItself has an operator as it is shipped update itself to a release, with rights that do not include those to
// write any ClusterVersion or to request any image.
func (s *stage) updateItself(service *graphServer, releases ...string) {
	s.t.Helper()
	before := s.setRights(rbacv1.PolicyRule{
		APIGroups: []string{"", "config.openshift.io"},
		Resources: []string{"configmaps", "namespaces", "clusteroperators"},
		Verbs:     []string{"get", "list", "watch", "create", "patch", "delete"},
	})
	s.ask(nil)
	s.annotate(automatic.UpdatesAnnotation, "patch")
	s.serveUpdates(service, "stable", "", releases...)
	last := releases[len(releases)-2]
	s.report("till", last)
	s.until("it has updated itself", isAt(last))
	s.setRights(before...)
}

// TestAnAutomaticUpdateIsTested runs the tests of a release once it is complete. A failed test holds further automatic
// updates, or rolls the update back at once if it may.
func TestAnAutomaticUpdateIsTested(t *testing.T) {
	t.Parallel()
	const smoke = `
-- 0000_90_smoke_10_job.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: smoke, namespace: shop, annotations: {runlevel.dev/test: "true"}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: smoke, image: registry.example/smoke, env: [{name: SANDBOX_EXIT_CODE, value: "RESULT"}]}]
`
	service, reports := newGraphServer(t), newReportServer(t)
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	good := s.push("1.0.1", shop+strings.ReplaceAll(smoke, "RESULT", "0"))
	bad := s.push("1.0.2", shop+strings.ReplaceAll(smoke, "RESULT", "1"))
	s.annotate(automatic.UpdatesAnnotation, "patch", "runlevel.dev/report-updates", reports.URL+"/reports")
	s.serveUpdates(service, "stable", "", "1.0.0", s.options.Payload, "1.0.1", good)
	s.until("the tests run", has(clusterversion.AutomaticUpdates, configv1.ConditionTrue, automatic.RunningTests))
	s.until("the tests have passed", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.1")(v) && requestsNothing(v)
	})
	s.await("the success is reported", func() bool { return reports.has(report.Succeeded, "1.0.1") })

	s.serveUpdates(service, "fast", "", "1.0.1", good, "1.0.2", bad)
	s.until("a test has failed",
		hasMessage(clusterversion.AutomaticUpdates, "tests of 1.0.2 failed: Job shop/smoke: "))
	s.await("the failure is reported", func() bool { return reports.has(report.Failed, "1.0.2") })
	if reports.has(report.Succeeded, "1.0.2") {
		t.Error("the update was reported as a success")
	}
	if got := s.announced("ReleaseTestFailed"); !strings.HasPrefix(got, "Tests of 1.0.2 failed: Job shop/smoke: ") {
		t.Errorf("events: %q", got)
	}
	if out, _ := s.runProgram(t, sandboxtest.Program(t, "runlevel"), "list"); !strings.Contains(out, "FailedTests") {
		t.Errorf("runlevel list does not show the failed test:\n%s", out)
	}
	s.annotate(automatic.RollbackAnnotation, "1h")
	s.until("it goes back", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.1")(v) && len(v.Status.History) == 4
	})
	s.until("it does not take the version again",
		hasMessage(clusterversion.AutomaticUpdates, "No patch update is available: 1.0.2 was rolled back before"))
}
