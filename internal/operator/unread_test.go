package operator_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// future has parts that no operator knows: a field of templates, one of the settings, one of hooks, and an annotation.
const future = shop + `
-- manifests/0000_30_old_10_prices.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: shop}
data: {region: '{{.Region}}'}
-- 0000_40_shop_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations: {runlevel.dev/lifecycle-hooks: 'before: {}'}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: beside, namespace: shop, annotations: {runlevel.dev/shard-by: zone}}}
`

// futureSettings are added to a release as they are.
const futureSettings = "-- runlevel.yaml --\nname: default\nregions: [eu]\n"

// costs is an object that a later release deletes.
const costs = `
-- 0000_50_old_10_costs.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: costs, namespace: shop}, data: {version: VERSION}}
`

const noCosts = `
-- 0000_50_old_10_costs.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: costs, namespace: shop, annotations: {release.openshift.io/delete: "true"}}}
`

// TestAReleaseThatIsNewerThanTheOperator is applied as far as the operator can read it, and is visibly not complete:
// its own operator is to take over. No part is taken for dropped, and the next release is not locked out.
func TestAReleaseThatIsNewerThanTheOperator(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.enableNone()
	s.beginWith("1.0.0", shop+old+costs+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	image := s.push("1.0.1", future+futureSettings+noCosts+till)
	parts := []string{
		"manifests/0000_30_old_10_prices.yaml:4: its template can't be rendered: unknown field Region: this runlevel " +
			"knows .ClusterProfile, .Images, .ReleaseImage; a newer one may know it",
		"release-manifests/0000_40_shop_10_web.yaml:6: document 1: Deployment shop/web: " +
			"runlevel.dev/lifecycle-hooks: " +
			"before: Forbidden: unknown field: write one of pre, mid, post",
		"runlevel.yaml:2: unknown field regions: it can have ",
	}
	s.update(image, func(u *configv1.Update) { u.Mode = configv1.UpdateModePreflight })
	s.until("checked without beginning it", func(v *configv1.ClusterVersion) bool {
		c := find(v, "PreflightPassed")
		return c.Status == configv1.ConditionTrue && containsAll(c.Message, parts...)
	})
	s.update(image)
	s.until("accepted, with the parts that are left out", func(v *configv1.ClusterVersion) bool {
		c := find(v, "ReleaseAccepted")
		return c.Status == configv1.ConditionTrue && containsAll(c.Message, parts...) &&
			strings.Contains(c.Message, "unknown annotation runlevel.dev/shard-by has no effect")
	})
	isIncomplete := func(v *configv1.ClusterVersion) bool {
		c, working := find(v, "Failing"), find(v, configv1.OperatorProgressing)
		return has("Failing", configv1.ConditionTrue, "ManifestsLeftOut")(v) && containsAll(c.Message, parts...) &&
			strings.HasPrefix(working.Message, "Unable to apply 1.0.1: 3 parts left out, which the operator of the "+
				"release, or another newer one, has to apply: manifests/0000_30_old_10_prices.yaml:4: ") &&
			!isAt("1.0.1")(v)
	}
	s.report("till", "1.0.1")
	stopped := s.until("applied, and not complete", isIncomplete)
	if got := stopped.Status.History[0]; got.State != configv1.PartialUpdate || got.Version != "1.0.1" {
		t.Errorf("the newest entry of the history is %+v", got)
	}
	if s.configMap("beside") == nil || s.configMap("prices") == nil || s.of("costs") != "1.0.0" {
		t.Error("a document beside the Deployment was not applied, or an object that was left out is deleted")
	}
	if web := (&appsv1.DeploymentList{}); s.client.List(t.Context(), web) != nil || len(web.Items) > 0 {
		t.Error("a Deployment with unknown hooks was applied")
	}
	known, _, err := record.NewStore(kubernetes.NewForConfigOrDie(s.sandbox.Config), system,
		payload.DefaultName).Load(t.Context())
	s.must(err)
	newest := known.Newest()
	if newest.State != record.Partial || newest.End == nil || newest.End.Reason != "ManifestsLeftOut" {
		t.Errorf("the record has %+v", newest)
	}
	text, isDone := s.status()
	if isDone || !strings.Contains(text, "unknown field Region") {
		t.Errorf("runlevel status prints:\n%s", text)
	}
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.1")

	s.report("till", "1.0.1", func(c *configv1.ClusterOperatorStatus) {
		c.Conditions[0].Status, c.Conditions[0].Message = configv1.ConditionFalse, "the till is broken"
	})
	s.until("a ClusterOperator is not available", func(v *configv1.ClusterVersion) bool {
		return has("Failing", configv1.ConditionTrue, "MultipleErrors")(v) &&
			strings.Contains(find(v, "Failing").Message, "the till is broken")
	})
	s.report("till", "1.0.1")
	s.until("available again", isIncomplete)

	s.restart()
	s.must(s.editSettings("by-hand"))
	s.untilSettings("1.0.1")
	s.until("the same after a restart", isIncomplete)

	s.update(s.push("1.1.0", shop+newer+noCosts+till)) // prices has a capability that is not enabled
	s.until("it has begun", func(v *configv1.ClusterVersion) bool { return v.Status.History[0].Version == "1.1.0" })
	s.report("till", "1.1.0") // not before: the release before waits for its own version
	updated := s.until("the next release, a minor one, is complete", isAt("1.1.0"))
	if enabled := updated.Status.Capabilities.EnabledCapabilities; !slices.Equal(enabled, console) {
		t.Errorf("the enabled capabilities are %v", enabled)
	}
	if s.configMap("prices").Data["image"] != "none" {
		t.Error("the object that was left out is not managed any more")
	}
	s.await("the whole release deletes what it has a tombstone of", func() bool { return s.of("costs") == "" })
	states := slices.Collect(func(yield func(configv1.UpdateState) bool) {
		for _, entry := range updated.Status.History {
			if !yield(entry.State) {
				return
			}
		}
	})
	want := []configv1.UpdateState{configv1.CompletedUpdate, configv1.PartialUpdate, configv1.CompletedUpdate}
	if !slices.Equal(states, want) {
		t.Errorf("the history has %v, want %v", states, want)
	}
}

// policy is a ConfigMap that may demand signatures of the next release, in a file that the operator can't read.
const policy = `
-- manifests/0000_20_shop_20_policy.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: policy, namespace: shop, annotations: {release.openshift.io/verification-config-map: ""}}
data: {region: '{{.Region}}'}
`

// TestAPolicyThatCanNotBeRead may demand signatures, so only force continues.
func TestAPolicyThatCanNotBeRead(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.update(s.push("1.0.1", shop+policy+s.newSigner().policy())) // the other policy may demand less
	s.until("the policy is left out", has("Failing", configv1.ConditionTrue, "ManifestsLeftOut"))
	next := s.push("1.0.2", shop)
	s.update(next)
	s.until("the next release is not verified", func(v *configv1.ClusterVersion) bool {
		return has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload")(v) &&
			strings.Contains(find(v, "ReleaseAccepted").Message, "release 1.0.1 may demand signatures by a manifest")
	})
	s.update(next, func(u *configv1.Update) { u.Force = true })
	s.until("forced", isAt("1.0.2"))
}

// A countingFS counts how often each file is opened.
type countingFS struct {
	fstest.MapFS
	opened map[string]int
}

func (c countingFS) Open(name string) (fs.File, error) {
	c.opened[name]++
	return c.MapFS.Open(name)
}

func (c countingFS) ReadFile(name string) ([]byte, error) {
	c.opened[name]++
	return c.MapFS.ReadFile(name)
}

// TestAFileWithManyProblemsIsReadOnce, and the reason counts the problems.
func TestAFileWithManyProblemsIsReadOnce(t *testing.T) {
	files := countingFS{fstest.MapFS{"a.yaml": {}, "b.yaml": {}}, map[string]int{}}
	problem := func(file string) payload.Problem { return payload.Problem{File: file, IsNewer: true} }
	err := operator.LeftOut(files, []payload.Problem{problem("a.yaml"), problem("b.yaml"), problem("a.yaml")})
	if files.opened["a.yaml"] != 1 || files.opened["b.yaml"] != 1 {
		t.Errorf("the files are read %v times", files.opened)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "3 parts left out, which ") {
		t.Errorf("the reason is %v", err)
	}
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
