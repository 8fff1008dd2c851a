package mistakes_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"

	runlevelapply "github.com/runlevel/runlevel/pkg/apply"
)

// maxTrials limits the trials at one time: most of their time, they wait for controllers.
const maxTrials = 6

// A trial is an update that an API server accepts, and parts of what its namespace shows afterwards.
type trial struct {
	name          string
	before, after fstest.MapFS
	shows         []string
	isAlone       bool
	maxSettling   time.Duration // the time to wait for a release before the update that does not get ready
}

// TestOutages applies the outages that a control plane can show, each to a release in a namespace of its own. So their
// table says what really happens. By default, it tries one outage in four: a small machine takes five minutes for all,
// and what they show changes only with the table and with Kubernetes. A thorough test tries all.
func TestOutages(t *testing.T) {
	all, err := mistakes.Outages()
	if err != nil {
		t.Fatal(err)
	}
	trials := map[string][]trial{}
	for i, m := range all {
		isChosen := i%4 == 0 || sandboxtest.IsThorough()
		if m.Tried == mistakes.ControlPlane && isChosen {
			trials[m.Family] = append(trials[m.Family], trialOf(t, m))
		}
	}
	trials["pages"] = trialsOfPages(t)
	config := sandboxtest.Start(t, sandbox.Options{Nodes: 3}).Config
	config.QPS = -1
	number := 0
	for family, members := range trials {
		t.Run(family, func(t *testing.T) {
			var group errgroup.Group
			group.SetLimit(maxTrials)
			for _, member := range members {
				number++
				namespace := fmt.Sprintf("shop%03d", number)
				if !member.isAlone {
					group.Go(func() error { member.run(t, config, namespace); return nil })
				}
			}
			_ = group.Wait()
			for i, member := range members {
				if member.isAlone {
					member.run(t, config, fmt.Sprintf("shop%s%d", family, i))
				}
			}
		})
	}
}

// trialOf returns the trial of an outage.
func trialOf(t *testing.T, m mistakes.Mistake) trial {
	t.Helper()
	before, err := m.Previous()
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := m.Release()
	if err != nil {
		t.Fatal(err)
	}
	if !extension.MatchString(fmt.Sprint(m)) {
		for name := range before {
			if extension.MatchString(name) {
				delete(before, name)
				delete(after, name)
			}
		}
	}
	return trial{m.Name, before, after, m.Shows, m.Alone, time.Minute}
}

// extension matches what extends the API server in shop/: the definition, its objects and the webhook. Trials that have
// nothing to do with it leave it out, because a server with a hundred definitions more does little else than describe
// them.
var extension = regexp.MustCompile("(?i)widget|gatekeeper|admission")

// trialsOfPages returns the examples of lint's pages that list the lines that a cluster shows.
func trialsOfPages(t *testing.T) (found []trial) {
	pages, err := filepath.Glob("../lint/rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		archive, err := txtar.ParseFile(page)
		if err != nil {
			t.Fatal(err)
		}
		one := trial{name: filepath.Base(page), before: fstest.MapFS{}, after: fstest.MapFS{}}
		one.maxSettling = 10 * time.Second // some are never ready
		for _, file := range archive.Files {
			folder, name, _ := strings.Cut(file.Name, "/")
			switch folder {
			case "bad.previous":
				one.before[name] = &fstest.MapFile{Data: file.Data}
			case "bad":
				one.after[name] = &fstest.MapFile{Data: file.Data}
			case "bad.shows":
				one.shows = strings.Split(strings.TrimSpace(string(file.Data)), "\n")
			case "bad.alone":
				one.isAlone = true
			}
		}
		if len(one.shows) > 0 {
			found = append(found, one)
		}
	}
	return found
}

// run applies the release before, and then the update, and awaits the lines that the update has to show.
func (tt trial) run(t *testing.T, config *rest.Config, namespace string) {
	t.Run(tt.name, func(t *testing.T) {
		before, after := parsed(t, tt.before, namespace), parsed(t, tt.after, namespace)
		o := &observer{
			config: config, client: kubernetes.NewForConfigOrDie(config), cluster: sandboxtest.Connect(t, config),
			namespace: namespace, shows: strings.Join(tt.shows, "\n"),
		}
		o.watched(before, after)
		t.Cleanup(func() { o.remove(t, before, after) })
		baseline := &sight{}
		if len(before.Manifests) > 0 {
			tt.apply(t, o, before, graph.Install)
			baseline = o.settle(t, tt.maxSettling)
		}
		tt.apply(t, o, after, graph.Update)
		if missing, changes := o.await(t, baseline, tt.shows); missing != "" {
			t.Errorf("%q is not to be seen, but:\n%s", missing, strings.Join(changes, "\n"))
		}
	})
}

// parsed reads a release whose objects are in another namespace than shop.
func parsed(t *testing.T, files fstest.MapFS, namespace string) *payload.Payload {
	t.Helper()
	renamed := fstest.MapFS{}
	for name, file := range files {
		text := strings.ReplaceAll(string(file.Data), "shop", namespace)
		renamed[strings.ReplaceAll(name, "shop", namespace)] = &fstest.MapFile{Data: []byte(text)}
	}
	release, _, err := payload.Parse(t.Context(), renamed, payload.Options{Name: namespace, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// apply applies a release. What does not become ready is not waited for.
func (tt trial) apply(t *testing.T, o *observer, release *payload.Payload, mode graph.Mode) {
	t.Helper()
	outcome := session.Run(t.Context(), o.cluster, release, session.Options{
		Force: true, CreateNamespace: true,
		Apply: runlevelapply.Options{Options: object.Options{Mode: mode}, NoWait: true, Patience: 20 * time.Second},
	})
	if outcome.Err != nil {
		t.Logf("the apply ends with: %v", outcome.Err) // where the release refuses its own objects
	}
}

// settle waits until all pods are ready and nothing changes any more, and returns the lines that it then sees.
func (o *observer) settle(t *testing.T, maxSettling time.Duration) (last *sight) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), maxEffect)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, time.Second/2, true, func(ctx context.Context) (bool, error) {
		now, err := o.look(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		isSame := last != nil && len(now.changes(last)) == 0
		last = now
		return isSame && (!now.unready || time.Since(begin) > maxSettling), nil
	})
	if last == nil {
		t.Fatal("the cluster does not answer")
	}
	return last
}

// maxEffect limits the time until the update shows its effect, on a machine that is busy with other tests.
const maxEffect = 3 * time.Minute

// await waits until the changes have all parts, and returns a part that does not appear, and the changes. A part that
// begins with "still " is to be seen after the update, whether or not it was before.
func (o *observer) await(t *testing.T, before *sight, parts []string) (missing string, changes []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxEffect)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, time.Second/2, true, func(ctx context.Context) (bool, error) {
		now, err := o.look(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		changes = now.changes(before)
		for i := range changes {
			changes[i] = strings.ReplaceAll(changes[i], o.namespace, "shop")
		}
		missing = ""
		for _, part := range parts {
			lines := changes
			if kept, isKept := strings.CutPrefix(part, "still "); isKept {
				part, lines = kept, now.renamed(o.namespace)
			}
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, part) }) {
				missing = part
			}
		}
		return missing == "", nil
	})
	if err != nil && missing == "" {
		missing = err.Error()
	}
	return missing, changes
}

// renamed returns all lines, with the namespace's common name.
func (s *sight) renamed(namespace string) (lines []string) {
	for line := range s.lines {
		lines = append(lines, strings.ReplaceAll(line, namespace, "shop"))
	}
	return lines
}

// remove deletes the objects of releases: webhooks first, which might refuse the other deletes.
func (o *observer) remove(t *testing.T, releases ...*payload.Payload) {
	ctx := context.WithoutCancel(t.Context())
	var manifests []*payload.Manifest
	for _, release := range releases {
		manifests = append(manifests, release.Manifests...)
	}
	slices.Reverse(manifests)
	for _, m := range manifests {
		resource, err := o.cluster.Find(ctx, m.GroupVersionKind())
		if err == nil && (m.ID().Namespace == "" || len(m.Object().GetFinalizers()) > 0) {
			api := o.cluster.In(resource, m.ID().Namespace)
			_ = api.Delete(ctx, m.ID().Name, metav1.DeleteOptions{})
		}
	}
}

// parse reads one object.
func parse(manifest string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		panic(err)
	}
	return object
}
