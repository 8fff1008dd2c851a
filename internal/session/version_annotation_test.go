package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// twoLevels has objects of several kinds on the first and the last level that can have the version, and others between
// them.
const twoLevels = `
-- 0000_10_web_10_secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}}
-- 0000_10_web_20_once.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: once, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}}
-- 0000_10_web_30_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{port: 80}]}}
-- 0000_10_web_40_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
-- 0000_10_web_50_more.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: NS}}
-- 0000_15_web_10_middle.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: middle, namespace: NS}}
-- 0000_20_shop_10_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: NS}, spec: {ports: [{port: 80}]}}
-- 0000_30_last_10_secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: last, namespace: NS}}
`

// marks returns which objects of a release have which version.
func (r release) marks() map[string]string {
	r.Helper()
	marks := map[string]string{}
	client := test.Client(r).CoreV1()
	configs, err := client.ConfigMaps(r.namespace).List(r.Context(),
		metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel})
	if err != nil {
		r.Fatal(err)
	}
	for _, configMap := range configs.Items {
		marks[configMap.Name] = configMap.Annotations[objectmeta.VersionAnnotation]
	}
	services, err := client.Services(r.namespace).List(r.Context(),
		metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel})
	if err != nil {
		r.Fatal(err)
	}
	for _, service := range services.Items {
		marks[service.Name] = service.Annotations[objectmeta.VersionAnnotation]
	}
	return marks
}

// An update to a version that changes nothing else writes two objects, and events on the record; the same version again
// writes none.
func TestTwoObjectsHaveTheVersion(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", twoLevels)
	if diff := cmp.Diff(map[string]string{
		"once":     "",
		"web":      "",
		"settings": "1.0.0",
		"more":     "",
		"middle":   "",
		"shop":     "1.0.0",
	}, r.marks()); diff != "" {
		t.Errorf("the versions of objects: %s", diff)
	}
	sent := &traffic{}
	counted, event := r.through(sent.note), "post events "+r.namespace+"/"
	for _, step := range []struct {
		version string
		writes  []string
	}{
		{"1.0.0", nil},
		{"1.0.1", []string{"patch configmaps " + r.namespace + "/settings", "patch services " + r.namespace + "/shop",
			event, event}},
		{"1.0.1", nil},
	} {
		sent.take()
		counted.must(step.version, twoLevels)
		if diff := cmp.Diff(step.writes, alone(sent.take())); diff != "" {
			t.Errorf("an apply of %s: %s", step.version, diff)
		}
	}
	r.must("", twoLevels, force)
	if marks := r.marks(); marks["settings"] != "" || marks["shop"] != "" {
		t.Errorf("a release without a version has %v", marks)
	}
}

// loseRecord deletes all that knows of a release but its objects.
func (r release) loseRecord() {
	r.Helper()
	client, name := test.Client(r), lock.Name(r.name)
	if err := client.CoreV1().ConfigMaps(r.namespace).Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	if err := client.CoordinationV1().Leases(r.namespace).Delete(r.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
}

// blocking returns the checks of the gate that block a version.
func (r release) blocking(version, files string, change ...func(*session.Options)) []string {
	r.Helper()
	options := session.Options{Namespace: r.namespace}
	for _, fn := range change {
		fn(&options)
	}
	outcome := session.Inspect(r.Context(), r.connect(), r.load(version, files), options)
	if outcome.Err != nil {
		r.Fatal(outcome.Err)
	}
	return precondition.CheckNames(precondition.Blocking(outcome.Findings))
}

func TestTheObjectsKnowTheVersionWithoutTheRecord(t *testing.T) {
	r := newRelease(t)
	r.must("1.1.0", twoLevels)
	elsewhere := func(options *session.Options) { options.Namespace = "elsewhere-" + r.namespace }
	if got := r.blocking("1.2.0", twoLevels, elsewhere); !slices.Equal(got, []string{precondition.RecordElsewhere}) {
		t.Errorf("a record in another namespace: %v", got)
	}
	r.loseRecord()
	for version, want := range map[string][]string{"1.0.0": {precondition.OlderVersion}, "1.1.0": nil, "1.2.0": nil,
		"1.3.0": {precondition.GiantHop}} {
		if got := r.blocking(version, twoLevels); !slices.Equal(got, want) {
			t.Errorf("%s after 1.1.0 is blocked by %v, want %v", version, got, want)
		}
	}
	if outcome := r.roll(t.Context(), "1.0.0", twoLevels); outcome.Err == nil ||
		!strings.Contains(outcome.Err.Error(), "1.0.0 is older than 1.1.0") {
		t.Errorf("an apply of 1.0.0 ends with %v", outcome.Err)
	}
	outcome := r.must("1.1.0", twoLevels)
	if notes := fmt.Sprint(outcome.Notes); outcome.Mode != graph.Update || outcome.Previous != "1.1.0" ||
		!strings.Contains(notes, "1.1.0 is the version in annotation runlevel.dev/release-version") {
		t.Errorf("the %s after %q: %s", outcome.Mode, outcome.Previous, notes)
	}
	known := r.record()
	if len(known.History) != 2 || known.Newest().Version != "1.1.0" || known.Newest().State != record.Completed ||
		known.History[1].Version != "1.1.0" {
		t.Errorf("the record has %+v", known.History)
	}
	if again := r.must("1.1.0", twoLevels); again.Mode != graph.Reconcile || len(again.Notes) > 0 {
		t.Errorf("again: %s, %v", again.Mode, again.Notes)
	}
}

func TestALostReleaseIsFoundByItsObjects(t *testing.T) {
	r := newRelease(t)
	r.must("1.9.0", twoLevels)
	r.loseRecord()
	find := func() *session.LostRelease {
		t.Helper()
		all, err := session.FindLost(t.Context(), r.connect())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(lostRelease session.LostRelease) bool { return lostRelease.Name == r.name })
		if i < 0 {
			t.Fatalf("found releases %+v", all)
		}
		return &all[i]
	}
	if found := find(); found.Objects != 6 || found.Newest.Version != "1.9.0" ||
		found.Newest.State != record.Completed || found.Newest.Completed.IsZero() {
		t.Errorf("found %+v, newest %+v", found, found.Newest)
	}
	patch := []byte(`{"metadata":{"annotations":{"` + objectmeta.VersionAnnotation + `":"1.10.0"}}}`)
	if _, err := test.Client(t).CoreV1().Services(r.namespace).Patch(t.Context(), "shop", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if found := find(); found.Newest.Version != "1.10.0" || found.Newest.State != record.Partial ||
		found.Newest.Completed != nil {
		t.Errorf("found newest %+v during an update", found.Newest)
	}
}
