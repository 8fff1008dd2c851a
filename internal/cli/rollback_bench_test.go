package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkRollback rolls back a release of a thousand objects in levels of ten components. All objects differ, and a
// hundred objects of the newer version are deleted. In turn with it, a bare loop applies the same files of a second
// release by server-side apply, level by level and sixteen at a time, deletes the same objects, and waits for the
// deletes, without a plan, a gate, a lock or a record. "of-loop" is the ratio of the two times, and "plan-of-loop" the
// ratio of a dry run, which has the plan and the gate, to the loop.
func BenchmarkRollback(b *testing.B) {
	var we, they, plan time.Duration
	for b.Loop() {
		b.StopTimer()
		first, second := newThousand(b), newThousand(b)
		began := time.Now()
		first.run("rollback", first.name, "--dry-run=server", "--delete-new")
		plan += time.Since(began)
		b.StartTimer()
		began = time.Now()
		first.run("rollback", first.name, "--yes", "--delete-new")
		we += time.Since(began)
		b.StopTimer()
		began = time.Now()
		second.rollBackBare()
		they += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(we)/float64(they), "of-loop")
	b.ReportMetric(float64(plan)/float64(they), "plan-of-loop")
	b.ReportMetric(we.Seconds()/float64(b.N), "s/rollback")
}

// A largeRelease is a release of a thousand objects whose second version was applied.
type largeRelease struct {
	*testing.B
	name   string
	files  map[string]string // version -> its files as txtar
	folder string
}

// partOf returns objects of five kinds.
const partOf = `{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, namespace: NS}, data: {version: VERSION}}
---
{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: NS, labels: {version: VERSION}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: NAME, namespace: NS, labels: {version: VERSION}}}
---
{apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: NS, labels: {version: VERSION}}, spec: {selector: {app: NAME}, ports: [{port: 80}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: NAME, namespace: NS, labels: {version: VERSION}}}
`

func newThousand(b *testing.B) *largeRelease {
	b.Helper()
	t := &largeRelease{b, "thousand-" + rand.String(6), map[string]string{}, b.TempDir()}
	for version, parts := range map[string]int{"v1": 200, "v2": 220} {
		files := map[string]string{"0000_10_base_00.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: NS}}"}
		for i := range parts {
			files[fmt.Sprintf("0000_%d_web-%d_%03d.yaml", 20+i/50, i%10, i)] = partOf
		}
		var text strings.Builder
		for name, content := range files {
			part := strings.TrimSuffix(name[strings.LastIndex(name, "_")+1:], ".yaml")
			content = strings.NewReplacer("NS", t.name, "NAME", "part-"+part, "VERSION", version).Replace(content)
			fmt.Fprintf(&text, "-- %s --\n%s\n", name, content)
			write(b, filepath.Join(t.folder, version, name), content)
		}
		t.files[version] = text.String()
	}
	t.run("apply", filepath.Join(t.folder, "v1"), "--name", t.name, "--release-version", "1.0.0")
	t.run("apply", filepath.Join(t.folder, "v2"), "--name", t.name, "--release-version", "1.1.0")
	return t
}

func (l *largeRelease) run(args ...string) {
	l.Helper()
	if code, output := runCommand(append(args, "--kubeconfig", control.Sandbox(l).Kubeconfig)); code != 0 {
		l.Fatalf("%v: exit code %d\n%s", args, code, output)
	}
}

// rollBackBare applies the first version, and deletes the objects that only the second version has.
func (l *largeRelease) rollBackBare() {
	l.Helper()
	c := sandboxtest.Connect(l, control.Sandbox(l).Config)
	first := sandboxtest.LoadRelease(l, l.name, l.files["v1"], payload.Options{Name: l.name})
	second := sandboxtest.LoadRelease(l, l.name, l.files["v2"], payload.Options{Name: l.name})
	has := map[kinds.ID]bool{}
	levels := map[string][]*payload.Manifest{}
	var order []string
	for _, m := range first.Manifests {
		has[m.ID()] = true
		level := m.File()[:len("0000_10")]
		if levels[level] == nil {
			order = append(order, level)
		}
		levels[level] = append(levels[level], m)
	}
	for _, level := range order {
		l.atOnce(levels[level], func(ctx context.Context, resource cluster.Resource, m *payload.Manifest) error {
			object := m.Object().DeepCopy()
			object.SetLabels(map[string]string{"version": "v1", "runlevel.dev/release": l.name})
			_, err := c.Apply(ctx, resource, object, cluster.Force)
			return err
		}, c)
	}
	var added []*payload.Manifest
	var scopes []inventory.Scope
	for _, m := range second.Manifests {
		if !has[m.ID()] {
			added = append(added, m)
			scopes = append(scopes, inventory.Scope{Kind: m.ID().GroupKind()})
		}
	}
	l.atOnce(added, func(ctx context.Context, resource cluster.Resource, m *payload.Manifest) error {
		return c.In(resource, l.name).Delete(ctx, m.ID().Name, metav1.DeleteOptions{})
	}, c)
	err := wait.PollUntilContextTimeout(l.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			remaining, err := inventory.Take(ctx, c, scopes, func(release string, id kinds.ID) bool {
				return release == l.name && !has[id]
			})
			return err == nil && len(remaining.Of(l.name)) == 0, err
		})
	if err != nil {
		l.Fatal(err)
	}
}

// atOnce calls a function for each manifest, sixteen at a time.
func (l *largeRelease) atOnce(manifests []*payload.Manifest,
	do func(context.Context, cluster.Resource, *payload.Manifest) error, c *cluster.Cluster) {
	l.Helper()
	group, ctx := errgroup.WithContext(l.Context())
	group.SetLimit(16)
	for _, m := range manifests {
		group.Go(func() error {
			resource, err := c.FindKind(ctx, m.ID().GroupKind())
			if err != nil {
				return err
			}
			return do(ctx, resource, m)
		})
	}
	if err := group.Wait(); err != nil {
		l.Fatal(err)
	}
}
