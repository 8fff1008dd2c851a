package operator_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/service"
)

// prices is new in 1.0.1.
const prices = `
-- 0000_30_shop_10_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: shop}, data: {version: VERSION}}
`

// TestAFleetFollowsARamp has five clusters that update themselves along a ramp. The second one can't be updated, and
// its report halts the update for the others, until a person has mended the cluster and resumes the update.
func TestAFleetFollowsARamp(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, 5)
	first, broken, others := fleet.clusters[0], fleet.clusters[1], fleet.clusters[2:]
	mend := broken.refusePrices()
	for _, s := range others {
		s.annotate("runlevel.dev/wariness", "1") // their turn is at the end of the ramp
	}
	broken.annotate("runlevel.dev/wariness", "0")
	fleet.serve("percentage: 1")

	first.until("the first cluster takes the update", isAt("1.0.1"))
	fleet.await(broken, "the second one begins the update", func(v *configv1.ClusterVersion) bool {
		return v.Status.Desired.Version == "1.0.1"
	})
	for _, s := range others {
		fleet.await(s, "the failure of the second one halts the update", hasMessage(configv1.RetrievedUpdates,
			"1.0.1 is halted: 1 of 5 clusters failed, more than maxFailures 0"))
		if !isAt("1.0.0")(s.version()) {
			t.Errorf("a halted update is taken\n%s", s.text())
		}
	}

	mend()
	broken.until("the mended cluster completes the update", isAt("1.0.1"))
	if err := graphdata.AppendHalt(fleet.folder, graphdata.Halt{To: "1.0.1", At: metav1.Now(),
		Resumed: "a policy has refused prices", By: "test"}); err != nil {
		t.Fatal(err)
	}
	fleet.serve("percentage: 100")
	for _, s := range others {
		fleet.await(s, "all clusters complete the update", isAt("1.0.1"))
	}
}

// refusePrices has a policy refuse the ConfigMap of the update, but not in the dry run of a preflight.
func (s *stage) refusePrices() (mend func()) {
	s.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-prices"}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			},
		},
	}}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: `object.metadata.name != "prices" || (has(request.dryRun) && request.dryRun)`,
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-prices"}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	s.must(s.client.Create(s.t.Context(), policy))
	s.must(s.client.Create(s.t.Context(), binding))
	s.await("the policy counts", func() bool {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prices"}}
		return s.client.Create(s.t.Context(), object) != nil || s.client.Delete(s.t.Context(), object) != nil
	})
	return func() { s.must(s.client.Delete(s.t.Context(), binding)) }
}

// A fleet is an update service with clusters that follow its channel stable.
type fleet struct {
	t             *testing.T
	folder        string
	address       string
	begun         time.Time
	queries       int
	first, second string // images of 1.0.0 and 1.0.1
	clusters      []*stage
}

// newFleet starts clusters at 1.0.0, and an update service without phases.
func newFleet(t *testing.T, count int) *fleet {
	t.Helper()
	f := &fleet{t: t, folder: t.TempDir(), begun: time.Now(), clusters: make([]*stage, count)}
	for i := range f.clusters {
		f.clusters[i] = newStage(t)
	}
	f.first, f.second = f.clusters[0].push("1.0.0", shop), f.clusters[0].push("1.0.1", shop+prices)
	var group errgroup.Group
	for _, s := range f.clusters {
		s.images, s.registry = f.clusters[0].images, f.clusters[0].registry
		s.beginWith("1.0.0", shop)
		group.Go(func() error { s.until("installed", isAt("1.0.0")); return nil })
	}
	_ = group.Wait()
	f.serve("")
	updates, err := service.New(service.Options{Folder: f.folder, Reports: filepath.Join(t.TempDir(), "reports"),
		Now: time.Now, Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- updates.Serve(ctx, listener, "", "") }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("the update service:", err)
		}
	})
	f.address = "http://" + listener.Addr().String()
	for _, s := range f.clusters {
		f.ask(s)
		s.annotate(automatic.UpdatesAnnotation, "patch", "runlevel.dev/report-updates", f.address+"/reports")
	}
	return f
}

// serve writes the graph data. The ramp has started, and lasts a day; without a ramp, nothing is open.
func (f *fleet) serve(ramp string) {
	f.t.Helper()
	if ramp != "" {
		ramp = fmt.Sprintf("start: %s\nduration: 24h\n%s", f.begun.UTC().Format(time.RFC3339), ramp)
	}
	files := txtar.Parse(fmt.Appendf(nil, `
-- version --
1.1.0
-- channels/stable.yaml --
name: stable
versions: [1.0.0, 1.0.1]
-- releases/1.0.0.yaml --
version: 1.0.0
image: %s
-- releases/1.0.1.yaml --
version: 1.0.1
image: %s
previous: [1.0.0]
-- phases/1.0.1.yaml --
to: 1.0.1
first: [%s]
clusters: %d
maxFailures: 0
%s
`, f.first, f.second, f.clusters[0].version().Spec.ClusterID, len(f.clusters), ramp))
	for _, file := range files.Files {
		path := filepath.Join(f.folder, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Data, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

// ask has a cluster ask the service at once: clusters ask every few minutes, and when their query changes.
func (f *fleet) ask(s *stage) {
	f.t.Helper()
	f.queries++
	s.specify(func(spec *configv1.ClusterVersionSpec) {
		spec.Upstream, spec.Channel = configv1.URL(fmt.Sprintf("%s/graph?query=%d", f.address, f.queries)), "stable"
	})
}

// await has a cluster ask the service until its ClusterVersion is as wanted. It does not ask once the update is
// available, since a new query begins the preflight again.
func (f *fleet) await(s *stage, what string, isSo func(*configv1.ClusterVersion) bool) {
	f.t.Helper()
	asked := time.Time{}
	s.await(what, func() bool {
		v := s.version()
		isOld := v.Status.Desired.Version == "1.0.0" && len(v.Status.AvailableUpdates) == 0
		if isOld && time.Since(asked) > 5*time.Second {
			f.ask(s)
			asked = time.Now()
		}
		return isSo(v)
	})
}
