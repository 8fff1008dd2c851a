package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/payload"
)

// fleet has the manifests that are the same in both versions of the release.
const fleet = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_10_base_10_account.yaml --
{apiVersion: v1, kind: ServiceAccount, metadata: {name: fleet, namespace: NS}}
-- 0000_10_base_20_cluster-role.yaml --
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
-- 0000_20_store_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: same, namespace: NS}, data: {colour: red}}
---
{apiVersion: v1, kind: Secret, metadata: {name: same, namespace: NS}, stringData: {token: abc}}
-- 0000_30_web_10_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 80}]}}
-- 0000_40_seed_10_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: seed, namespace: NS, annotations: {release.openshift.io/create-only: "true"}}
data: {first: "1"}
`

// fleetOne is the first version: fleet and more manifests.
const fleetOne = fleet + `
-- 0000_20_store_20_changed.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: NS}, data: {colour: red, dropped: "1"}}
-- 0000_30_web_20_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1"}]}
-- 0000_50_old_10_old.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: free, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-old}}
`

// fleetTwo is the update: it creates, changes, drops, runs and deletes objects. With fleet, it has
// thirty objects.
const fleetTwo = fleet + `
-- 0000_15_kinds_10_ships.crd.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Ship, plural: ships}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {mast: {type: integer}}}}}}}]
-- 0000_15_kinds_20_ship.yaml --
{apiVersion: NS.example.com/v1, kind: Ship, metadata: {name: one, namespace: NS}, spec: {mast: 3}}
---
{apiVersion: NS.example.com/v1, kind: Ship, metadata: {name: two, namespace: NS}, spec: {mast: 2}}
-- 0000_20_store_20_changed.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: NS}, data: {colour: blue}}
-- 0000_25_job_10_migrate.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: NS}
spec:
  template:
    metadata: {annotations: {sandbox.runlevel.dev/pod: complete}}
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: migrate, image: registry.example/migrate}]}
-- 0000_30_web_20_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:2"}]}
-- 0000_30_more_10_more.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: more-a, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: more-b, namespace: NS}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: more-c, namespace: NS}}
---
{apiVersion: v1, kind: Secret, metadata: {name: more-d, namespace: NS}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: more-e, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: more-f, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: more-g, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: more-f}, subjects: [{kind: ServiceAccount, name: fleet, namespace: NS}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS}, subjects: [{kind: ServiceAccount, name: fleet, namespace: NS}]}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: NS}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS}, value: 7}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: more-h, namespace: NS}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: more-i, namespace: NS}, spec: {hard: {pods: "100"}}}
---
{apiVersion: v1, kind: Service, metadata: {name: more-j, namespace: NS}, spec: {selector: {app: web}, ports: [{port: 81}]}}
-- 0000_50_old_10_old.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: free, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-old, annotations: {release.openshift.io/delete: "true"}}}
-- 0000_60_last_10_last.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}}
`

// mortalEnv turns this program into an applier that a test can kill: see beMortal.
const mortalEnv = "RUNLEVEL_TEST_MORTAL_APPLIER"

// A mortal is an applier in a process of its own.
type mortal struct {
	Server, Release, Text string
	Lock                  time.Duration
	Keeps                 bool // the applier keeps the release in place, and prints a line when it begins to
}

// beMortal updates a fleet. It is killed before it is done, unless it is to live.
func beMortal(job string) int {
	var m mortal
	err := json.Unmarshal([]byte(job), &m)
	if err == nil {
		err = m.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (m mortal) run(ctx context.Context) error {
	release, err := sandboxtest.ReadRelease(ctx, m.Release, m.Text, payload.Options{Name: m.Release, Version: "1.1.0"})
	if err != nil {
		return err
	}
	c, err := cluster.Connect(&rest.Config{Host: m.Server, UserAgent: m.Release})
	if err != nil {
		return err
	}
	o := options()
	o.Lock.Duration = m.Lock
	if m.Keeps {
		o.Keep = &keep.Options{}
		o.Observer = observer{onOutcome: func(*session.Outcome) { fmt.Println() }}
	}
	return session.Run(ctx, c, release, o).Err
}

// mortalLock is the time for which the lock of a stopped process blocks other processes. On a busy machine, a process
// could lose a shorter lock.
const mortalLock = 10 * time.Second

// A moment is when an applier is killed: at its write number k, counted from 1, before the
// server gets it or when the server has done it.
type moment struct {
	k    int
	when string
	lock time.Duration // how long its lock is in the way of others
}

const (
	beforeIt = "before"
	afterIt  = "after"
)

// kill updates a fleet, and kills who does it. It returns how many writes there were, and
// whether that was early enough.
func kill(t *testing.T, release string, m moment) (writes int, killed bool) {
	t.Helper()
	var process atomic.Pointer[os.Process]
	var count [2]atomic.Int64
	var dead atomic.Bool
	started, ended := make(chan struct{}), make(chan struct{})
	passes := func(request *http.Request, when string, which int) bool {
		if !isWrite(request) || !dead.Load() && (int(count[which].Add(1)) != m.k || m.when != when) {
			return true
		}
		<-started
		dead.Store(true)
		_ = process.Load().Kill()
		<-ended
		return false
	}
	address := proxy{
		arrived:  func(request *http.Request) bool { return passes(request, beforeIt, 0) },
		answered: func(answer *http.Response) bool { return passes(answer.Request, afterIt, 1) },
	}.start(t)
	job, _ := json.Marshal(mortal{Server: address, Release: release, Text: fleetTwo, Lock: m.lock})
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), mortalEnv+"="+string(job))
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process.Store(command.Process)
	close(started)
	err := command.Wait()
	close(ended)
	if err != nil && !dead.Load() {
		t.Fatalf("the update failed before it was killed: %v\n%s", err, output.String())
	}
	return int(count[0].Load()), dead.Load()
}

// prepare installs a fleet and holds what its update deletes.
func prepare(t *testing.T, release string) {
	t.Helper()
	c := connectAs(t, release+"-before")
	mustRun(t, c, load(t, release, "1.0.0", fleetOne))
	holdBack := []byte(`{"metadata": {"finalizers": ["example.com/hold"]}}`)
	if _, err := c.Client.CoreV1().ConfigMaps(release).Patch(t.Context(), "held", types.MergePatchType, holdBack,
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
}

// TestKilledAtAnyWrite kills an update at its writes, and runs it again. The cluster then has the
// same objects as after an undisturbed run, and nothing was deleted or run twice.
func TestKilledAtAnyWrite(t *testing.T) {
	const undisturbed = "killed-never"
	prepare(t, undisturbed)
	all, killed := kill(t, undisturbed, moment{})
	if objects := len(load(t, undisturbed, "1.1.0", fleetTwo).Manifests); objects != 30 || all < objects || killed {
		t.Fatalf("%d objects, %d writes, killed: %t", objects, all, killed)
	}
	want, wantDeeds := stateOf(t, undisturbed), deedsOf(t, undisturbed)
	if !strings.Contains(want, "name: held") || len(wantDeeds) != 5 {
		t.Fatalf("unexpected result of an undisturbed update:\n%s\n%s", want, strings.Join(wantDeeds, "\n"))
	}
	t.Logf("an undisturbed update has %d writes", all)

	every := 5
	if sandboxtest.IsThorough() {
		every = 1
	}
	first := 1 + rand.IntN(every)
	t.Logf("it is killed at every %d. write, from write %d on", every, first)
	var several errgroup.Group // not limited by -parallel: the subtests mostly wait
	several.SetLimit(4)
	for k := first; k <= all; k += every {
		several.Go(func() error { return killAndCompare(t, moment{k, afterIt, patience}, want, wantDeeds) })
		if (k-first)/every%3 == 0 {
			several.Go(func() error { return killAndCompare(t, moment{k, beforeIt, patience}, want, wantDeeds) })
		}
	}
	_ = several.Wait() // the subtests have reported errors
}

// killAndCompare kills one update, and runs it again.
func killAndCompare(t *testing.T, m moment, want string, wantDeeds []string) error {
	t.Run(fmt.Sprintf("write %d, %s it", m.k, m.when), func(t *testing.T) {
		release := fmt.Sprintf("killed-%d-%s", m.k, m.when)
		prepare(t, release)
		if _, killed := kill(t, release, m); !killed && m.k <= 30 { // retries may have made the other update longer
			t.Fatal("it was not killed")
		}
		breakLock(t, release)
		mustRun(t, connectAs(t, release), load(t, release, "1.1.0", fleetTwo))
		if diff := cmp.Diff(want, stateOf(t, release)); diff != "" {
			t.Errorf("the rerun's end state is another than an undisturbed run's (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantDeeds, deedsOf(t, release)); diff != "" {
			t.Errorf("something was done twice, or not at all (-want +got):\n%s", diff)
		}
	})
	return nil
}

// breakLock deletes the Lease of a process that was killed, as an administrator may who knows that.
func breakLock(t *testing.T, release string) {
	t.Helper()
	err := test.Client(t).CoordinationV1().Leases(records).Delete(t.Context(), lock.Name(release),
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// deedsOf are the creates and deletes of a fleet's update that must be done once.
func deedsOf(t *testing.T, release string) []string {
	t.Helper()
	var deeds []string
	for _, w := range audited(t, func(w write) bool {
		switch {
		case w.Object.Namespace == release && w.Object.Resource == "pods" && w.Verb == "create" &&
			w.Object.Subresource == "":
			return strings.Contains(w.Agent, "job-controller") // the pods of a Job
		case w.Agent != release:
			return false
		}
		return w.Verb == "delete" || w.Object.Resource == "jobs" && w.Status.Code == http.StatusCreated
	}) {
		if w.Object.Resource == "pods" {
			w.Object.Name = "" // a generated name
		}
		deeds = append(deeds, strings.ReplaceAll(w.String(), release, "NS"))
	}
	slices.Sort(deeds)
	return deeds
}

// stateOf is all that a fleet has on the cluster, and its record, without what differs
// from run to run.
func stateOf(t *testing.T, release string) string {
	t.Helper()
	c := connectAs(t, "looker")
	var texts []string
	seen := map[schema.GroupKind]bool{}
	for _, manifest := range load(t, release, "1.1.0", fleetTwo).Manifests {
		kind := manifest.GroupVersionKind()
		if seen[kind.GroupKind()] {
			continue
		}
		seen[kind.GroupKind()] = true
		resource, err := c.Find(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.In(resource, release).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range found.Items {
			if resource.Namespaced || object.GetLabels()[objectmeta.ReleaseLabel] == release {
				texts = append(texts, lasting(t, object))
			}
		}
	}
	slices.Sort(texts)
	text := strings.Join(append(texts, recordOf(t, c, release)), "---\n")
	return strings.ReplaceAll(text, release, "NS")
}

// lasting returns the part of an object that is the same in each run, with its owners.
func lasting(t *testing.T, object unstructured.Unstructured) string {
	t.Helper()
	var owners []any
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource != "" {
			continue // a controller's
		}
		var fields any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		owners = append(owners, map[string]any{
			"manager":   entry.Manager,
			"operation": string(entry.Operation),
			"fields":    fields,
		})
	}
	slices.SortFunc(owners, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if object.GetDeletionTimestamp() != nil {
		object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(0, 0)})
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	delete(object.Object, "status")
	if object.GetKind() == "Job" { // they hold its UID
		unstructured.RemoveNestedField(object.Object, "spec", "selector")
		unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "labels")
	}
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(object.Object, "spec", field)
	}
	for _, key := range []string{"ca.crt"} {
		unstructured.RemoveNestedField(object.Object, "data", key)
	}
	text, err := yaml.Marshal(map[string]any{"object": object.Object, "owners": owners})
	if err != nil {
		t.Fatal(err)
	}
	return "\nkind: " + object.GetKind() + "\n" + string(text)
}

// recordOf is the record of a release without times and UIDs.
func recordOf(t *testing.T, c *cluster.Cluster, release string) string {
	t.Helper()
	known, _, err := record.NewStore(c.Client, records, release).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known.Durations = nil
	for i := range known.History {
		entry := &known.History[i]
		entry.Started, entry.Completed, entry.Hash, entry.Content = metav1.Time{}, nil, "", ""
	}
	for i := range known.Tombstones {
		if known.Tombstones[i].UID == "" {
			t.Errorf("the record has no UID of %s", known.Tombstones[i].ID)
		}
		known.Tombstones[i].UID, known.Tombstones[i].RequestedAt = "", metav1.Time{}
	}
	for i := range known.Jobs {
		known.Jobs[i].UID, known.Jobs[i].Sum = "", ""
	}
	text, err := yaml.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
