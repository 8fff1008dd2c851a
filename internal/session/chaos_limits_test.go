package session_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// blobs is a definition of objects that may be as large as etcd takes them: a ConfigMap is
// bounded below that.
const blobs = `
-- 0000_10_base_10_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_10_base_20_blobs.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: blobs.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Blob, plural: blobs}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

func TestObjectsOfTheMaximumSize(t *testing.T) {
	const name, kilobyte = "large", 1 << 10
	config := func(size int) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: data, namespace: NS}, data: {text: " +
			strings.Repeat("x", size) + "}}\n"
	}
	blob := func(size int) string {
		return "{apiVersion: NS.example.com/v1, kind: Blob, metadata: {name: data, namespace: NS}, text: " +
			strings.Repeat("x", size) + "}\n"
	}
	const last = "-- 0000_20_other_10_other.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: other, " +
		"namespace: NS}}\n"
	for what, large := range map[string]struct {
		text    string
		refused string // a part of the error; "" if the object is applied
	}{
		"config-map":        {config(1023 * kilobyte), ""},
		"config-map-larger": {config(1025 * kilobyte), "Too long: may not be more than 1048576 bytes"},
		"blob":              {blob(1400 * kilobyte), ""},
		"blob-etcd":         {blob(2000 * kilobyte), "too large"},
		"blob-server":       {blob(4000 * kilobyte), "too large"},
	} {
		t.Run(what, func(t *testing.T) {
			release := load(t, name+"-"+what, "1.0.0", blobs+"-- 0000_20_large_10_large.yaml --\n"+large.text+last)
			outcome := session.Run(t.Context(), connectAs(t, name), release, options())
			if large.refused == "" {
				if got := counts(outcome); outcome.Err != nil || got[object.Created] != 4 {
					t.Fatalf("the object is not applied: %v %v", got, outcome.Err)
				}
				if again := mustRun(t, connectAs(t, name), release); counts(again)[object.Unchanged] != 4 {
					t.Errorf("the second time: %v", counts(again))
				}
				return
			}
			if got := counts(outcome); got[object.Failed] != 1 || got[object.Created] != 3 {
				t.Fatalf("the others are not applied: %v", got)
			}
			text := outcome.Err.Error()
			if !strings.Contains(text, large.refused) || !strings.Contains(text, "(0000_20_large_10_large.yaml:1, ") ||
				len(text) > 500 || strings.Contains(text, "\n") {
				t.Errorf("%d bytes: %.1000s", len(text), text)
			}
		})
	}
}

func TestTheClockIsAnHourOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			release := "clock-" + name
			prepare(t, release)
			var writes atomic.Int64
			config := sandboxtest.Before(configOf(t, release), func(request *http.Request) error {
				if isWrite(request) && writes.Add(1) == 5 {
					return fmt.Errorf("cut off: %w", syscall.ECONNRESET)
				}
				return nil
			})
			c := sandboxtest.Connect(t, sandboxtest.ShiftClock(config, off))
			retried := 0
			o := options()
			o.Apply.OnEvent = func(event apply.Event) {
				if event.Type == apply.Retrying {
					retried++
				}
			}
			outcome := session.Run(t.Context(), c, load(t, release, "1.1.0", fleetTwo), o)
			if outcome.Err != nil || retried != 1 {
				t.Fatalf("after %d retries: %v", retried, outcome.Err)
			}
			if ahead := time.Until(c.Now()); ahead < off-time.Minute || ahead > off+time.Minute {
				t.Errorf("the server's clock is taken to be %s off, not %s", ahead, off)
			}
			if len(outcome.Deletes) != 1 || outcome.Took < 0 || outcome.Took > patience {
				t.Fatalf("the apply took %s, with pending deletes %v", outcome.Took, outcome.Deletes)
			}
			if text := outcome.Deletes[0].Seen.Describe(c.Now()); !strings.HasPrefix(text, "terminating for ") ||
				strings.Contains(text, "for -") {
				t.Errorf("the age of the delete: %s", text)
			}
			known, _, err := record.NewStore(c.Client, records, release).Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if newest := known.Newest(); newest.Completed == nil || newest.Completed.Before(&newest.Started) {
				t.Errorf("the record has start %s and end %v", newest.Started, newest.Completed)
			}
			lease, err := test.Client(t).CoordinationV1().Leases(records).Get(t.Context(), "runlevel-release-"+release,
				metav1.GetOptions{})
			if err != nil || lease.Spec.RenewTime == nil {
				t.Fatalf("%v, %v", lease, err)
			}
			if age := c.Now().Sub(lease.Spec.RenewTime.Time); age.Abs() > patience {
				t.Errorf("by the server's clock, the lock was last renewed %s ago", age)
			}
			if finding := precondition.Evaluate(&precondition.Facts{
				Now:     c.Now(),
				Payload: load(t, release, "1.2.0", fleetTwo),
				Record:  known,
				Deletes: outcome.Deletes,
			}); len(finding) == 0 || strings.Contains(fmt.Sprint(finding), "for -") {
				t.Errorf("the gate reports %v", finding)
			}
		})
	}
}

func TestUnicode(t *testing.T) {
	const name, value = "unicode", "Grüße, 日本語, 🚀, e\u0301, \u202eabc\u202c, \u0000, \u2028"
	const text = `
-- 0000_10_über_10_base.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_日本語_10_設定 🚀.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: map, namespace: NS, annotations: {example.com/note: "Grüße, 日本語, 🚀, e\u0301, \u202eabc\u202c, \u0000, \u2028"}}
data: {key: "Grüße, 日本語, 🚀, e\u0301, \u202eabc\u202c, \u0000, \u2028"}
`
	c := connectAs(t, name)
	release := load(t, name, "1.0.0", text)
	mustRun(t, c, release)
	made, err := c.Client.CoreV1().ConfigMaps(name).Get(t.Context(), "map", metav1.GetOptions{})
	if err != nil || made.Data["key"] != value || made.Annotations["example.com/note"] != value {
		t.Errorf("%q, %q, %v", made.Data["key"], made.Annotations["example.com/note"], err)
	}
	if again := mustRun(t, c, release); counts(again)[object.Unchanged] != 2 {
		t.Errorf("the second time: %v", counts(again))
	}
	wrong := load(t, name, "1.0.1", strings.Replace(text, "data: {key", "data: {\"\u202eklé\": x, key", 1))
	outcome := session.Run(t.Context(), c, wrong, options())
	if outcome.Err == nil {
		t.Fatal("a key that the server refuses is applied")
	}
	if message := outcome.Err.Error(); !strings.Contains(message, "0000_20_日本語_10_設定 🚀.yaml:1") ||
		strings.ContainsAny(message, "\u202e\n\u2028") {
		t.Errorf("got error %q", message)
	}
}

func TestAnObjectThatIsNeverDeletedBlocksNothing(t *testing.T) {
	const name = "never-goes"
	const before = `
-- 0000_10_base_10_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_old_10_old.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-old}}
-- 0000_20_old_20_map.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: map, namespace: NS-old, finalizers: [example.com/in-it]}}
-- 0000_20_old_30_map.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: map, namespace: NS, finalizers: [example.com/never]}}
`
	const after = `
-- 0000_10_base_10_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_old_10_old.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-old, annotations: {release.openshift.io/delete: "true"}}}
-- 0000_20_old_30_map.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: map, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
-- 0000_30_new_10_map.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: NS}}
`
	c := connectAs(t, name)
	mustRun(t, c, load(t, name, "1.0.0", before))
	outcome := mustRun(t, c, load(t, name, "1.1.0", after))
	if got := counts(outcome); got[object.Pending] != 2 || got[object.Created] != 1 || len(outcome.Orphans) != 0 {
		t.Errorf("%v, orphans: %v", got, outcome.Orphans)
	}
	known, _, err := record.NewStore(c.Client, records, name).Load(t.Context())
	if err != nil || known.Newest().State != record.Completed || len(known.Tombstones) != 2 {
		t.Fatalf("the record: %+v, %v", known, err)
	}
	for _, wanted := range []string{"example.com/never", "example.com/in-it"} {
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				var text strings.Builder
				for _, item := range precondition.ObserveDeletes(ctx, c, known.Tombstones) {
					fmt.Fprintln(&text, item.Seen.Describe(c.Now()))
				}
				return strings.Contains(text.String(), wanted), nil
			})
		if err != nil {
			t.Errorf("no pending delete is described with %q", wanted)
		}
	}
	if refused := session.Inspect(t.Context(), c, load(t, name, "1.2.0", after),
		options()); len(precondition.Blocking(refused.Findings)) != 2 {
		t.Errorf("the next minor version: %v", refused.Findings)
	}
}

// A thousand objects are installed, and then the same once more, which writes none.
func TestThousandsOfObjects(t *testing.T) {
	const name = "thousands"
	count := 1000
	if sandboxtest.IsThorough() {
		count = 5000
	}
	sent := &traffic{}
	release, c := load(t, name, "1.0.0", configMaps(count)), connectAs(t, name, sent.note)
	versions := map[graph.Mode]map[string]string{} // versions of the objects after each run, keyed by name
	for _, run := range []struct {
		mode graph.Mode
		want map[object.Action]int
	}{
		{graph.Install, map[object.Action]int{object.Created: count + 1}}, // one more for their Namespace
		{graph.Reconcile, map[object.Action]int{object.Unchanged: count + 1}},
	} {
		runtime.GC()
		highest, events := uint64(0), 0
		o := options()
		o.Apply.OnEvent = func(apply.Event) {
			if events++; events%250 == 0 {
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				highest = max(highest, now.HeapAlloc)
			}
		}
		outcome := session.Run(t.Context(), c, release, o)
		if outcome.Err != nil || outcome.Mode != run.mode {
			t.Fatalf("an %s: %v", outcome.Mode, outcome.Err)
		}
		if diff := cmp.Diff(run.want, counts(outcome)); diff != "" {
			t.Errorf("%s: %s", run.mode, diff)
		}
		all := sent.take()
		if run.mode == graph.Reconcile && len(alone(all)) > 0 {
			t.Errorf("the second apply gets single objects %q", alone(all))
		}
		made, err := c.Client.CoreV1().ConfigMaps(name).List(t.Context(),
			metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel + "=" + name})
		if err != nil {
			t.Fatal(err)
		}
		versions[run.mode] = map[string]string{}
		for i := range made.Items {
			versions[run.mode][made.Items[i].Name] = made.Items[i].ResourceVersion
		}
		t.Logf("%s: %s, at most %d MB of heap, %s, %d bytes remembered", run.mode,
			outcome.Took.Round(100*time.Millisecond), highest>>20, summary(all),
			len(outcome.Report.Fingerprints.Bytes()))
	}
	if diff := cmp.Diff(versions[graph.Install], versions[graph.Reconcile]); len(versions[graph.Install]) != count ||
		diff != "" {
		t.Errorf("%d were there, and then were written again: %s", len(versions[graph.Install]), diff)
	}
}
