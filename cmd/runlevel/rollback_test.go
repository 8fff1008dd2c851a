package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
)

// twoVersions are two versions of a release in the namespace NS. The second version changes, deletes and adds objects.
const twoVersions = `
-- 1/0000_10_base_00.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 1/0000_20_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS}, data: {colour: red, dropped: "1"}}
-- 1/0000_20_web_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: dropped, namespace: NS}, data: {colour: red}}
-- 2/0000_10_base_00.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 2/0000_20_web_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: NS}, data: {colour: blue}}
-- 2/0000_20_web_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: dropped, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
-- 2/0000_30_new_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: NS}}
---
{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: NS}}
-- 2/0000_40_new_10.yaml --
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: new, namespace: NS}}
`

// A testRelease is a release of twoVersions, whose first version is applied.
type testRelease struct {
	*testing.T
	name, folder string
	first        map[string]string // objects of the first version on the cluster
}

func newRolledRelease(t *testing.T) *testRelease {
	t.Helper()
	name := "rolled-" + rand.String(6)
	r := &testRelease{T: t, name: name, folder: t.TempDir()}
	for _, file := range txtar.Parse([]byte(strings.ReplaceAll(twoVersions, "NS", name))).Files {
		path := filepath.Join(r.folder, file.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, file.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r.must("apply", "1", "--name", name, "--release-version", "1.0.0")
	r.first = r.objects()
	return r
}

// updated returns a release whose second version is applied, too.
func updated(t *testing.T) *testRelease {
	r := newRolledRelease(t)
	r.must(r.update()...)
	return r
}

func (r *testRelease) update() []string {
	return []string{"apply", "2", "--name", r.name, "--release-version", "1.1.0"}
}

func (r *testRelease) rollback(flags ...string) []string {
	return slices.Concat([]string{"rollback", r.name, "--yes", "--delete-new"}, flags)
}

// command returns a command of the program, and its output. An empty server stands for that of the control plane.
func (r *testRelease) command(server string, args ...string) (*exec.Cmd, *programOutput) {
	r.Helper()
	config, err := clientcmd.LoadFromFile(shared.Sandbox(r).Kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	if server != "" {
		for _, cluster := range config.Clusters {
			cluster.Server, cluster.CertificateAuthorityData = server, nil
		}
	}
	path := filepath.Join(r.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		r.Fatal(err)
	}
	command, out := exec.CommandContext(r.Context(), "runlevel", append(args, "--kubeconfig", path)...),
		&programOutput{}
	command.Dir, command.Stdout, command.Stderr = r.folder, out, out
	return command, out
}

func (r *testRelease) must(args ...string) {
	r.Helper()
	command, out := r.command("", args...)
	if err := command.Run(); err != nil {
		r.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// expectFailure runs a command that must fail, and returns its output.
func (r *testRelease) expectFailure(args ...string) string {
	r.Helper()
	command, out := r.command("", args...)
	if err := command.Run(); err == nil {
		r.Errorf("%v does not fail:\n%s", args, out)
	}
	return out.String()
}

// objects returns the objects of the release on the cluster, without fields that differ each time.
func (r *testRelease) objects() map[string]string {
	r.Helper()
	c, all := sandboxtest.Connect(r, shared.Sandbox(r).Config), map[string]string{}
	for _, kind := range []schema.GroupKind{kinds.ConfigMap, kinds.Secret,
		kinds.Role} {
		list, err := c.List(r.Context(), kind, r.name, objectmeta.ReleaseLabel+"="+r.name)
		if err != nil {
			r.Fatal(err)
		}
		for _, object := range list {
			text, _ := json.Marshal([]any{object.GetLabels(), object.GetAnnotations(), object.Object["data"],
				object.GetDeletionTimestamp()})
			all[kind.Kind+" "+object.GetName()] = string(text)
		}
	}
	return all
}

func (r *testRelease) record() *record.Record {
	r.Helper()
	known, _, err := record.NewStore(shared.Client(r), session.DefaultNamespace, r.name).Load(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return known
}

// expectRolledBack fails the test unless the first version is complete, nothing of the second version remains, and the
// history has one rollback.
func (r *testRelease) expectRolledBack() {
	r.Helper()
	if diff := cmp.Diff(r.first, r.objects()); diff != "" {
		r.Errorf("the objects are not those of the first version (-want +got):\n%s", diff)
	}
	known := r.record()
	var texts []string
	for _, entry := range known.History {
		texts = append(texts, fmt.Sprint(entry.Revision, " ", entry.Version, " ", entry.State, " ",
			entry.Rollback != nil))
	}
	if diff := cmp.Diff([]string{"3 1.0.0 Completed true", "2 1.1.0 Completed false", "1 1.0.0 Completed false"},
		texts); diff != "" {
		r.Fatalf("the history (-want +got):\n%s", diff)
	}
	if rollback := known.History[0].Rollback; rollback.To != 1 || rollback.From != 2 || rollback.Version != "1.1.0" ||
		rollback.By == "" ||
		rollback.Reason == "" {
		r.Errorf("the rollback in the history: %+v", rollback)
	}
}

// A programOutput is the output that a program has printed so far.
type programOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *programOutput) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *programOutput) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// serve serves the API server with the admin's rights, through a function, and returns its address.
func (r *testRelease) serve(through func(http.Handler, http.ResponseWriter, *http.Request)) string {
	r.Helper()
	config := shared.Sandbox(r).Config
	target, err := url.Parse(config.Host)
	if err != nil {
		r.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	if forward.Transport, err = rest.TransportFor(config); err != nil {
		r.Fatal(err)
	}
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) { through(forward, w, request) }),
	)
	r.Cleanup(server.Close)
	return server.URL
}

// isWrite reports whether a request changes an object other than the lock.
func isWrite(request *http.Request) bool {
	isQuestion := strings.Contains(request.URL.Path, "/selfsubject") || request.URL.Query().Has("dryRun")
	return request.Method != http.MethodGet && !isQuestion && !strings.Contains(request.URL.Path, "/leases")
}

// kill rolls back, and kills the program at its write number k, counted from 1, after the server has executed the write
// or before the server receives it. It returns the number of writes.
func (r *testRelease) kill(k int, isDone bool) (writes int, killed bool) {
	r.Helper()
	var count atomic.Int64
	var dead atomic.Bool
	var process atomic.Pointer[os.Process]
	started, ended := make(chan struct{}), make(chan struct{})
	end := func() {
		<-started
		dead.Store(true)
		_ = process.Load().Kill()
		<-ended
		panic(http.ErrAbortHandler)
	}
	address := r.serve(func(forward http.Handler, w http.ResponseWriter, request *http.Request) {
		isOurs := isWrite(request) && int(count.Add(1)) == k
		switch {
		case isOurs && isDone:
			forward.ServeHTTP(httptest.NewRecorder(), request)
			end()
		case isOurs, isWrite(request) && dead.Load():
			end()
		default:
			forward.ServeHTTP(w, request)
		}
	})
	command, out := r.command(address, r.rollback("--reason", "the first")...)
	if err := command.Start(); err != nil {
		r.Fatal(err)
	}
	process.Store(command.Process)
	close(started)
	err := command.Wait()
	close(ended)
	if err != nil && !dead.Load() {
		r.Fatalf("the rollback failed before it was killed: %v\n%s", err, out)
	}
	return int(count.Load()), dead.Load()
}

// TestRollbackKilledAtEachWrite kills a rollback at each of its writes, and repeats the command: the rollback must be
// complete, with one entry in the history.
func TestRollbackKilledAtEachWrite(t *testing.T) {
	undisturbed := updated(t)
	all, killed := undisturbed.kill(0, true)
	if all < 8 || killed {
		t.Fatalf("%d writes, killed: %t", all, killed)
	}
	undisturbed.expectRolledBack()
	t.Logf("an undisturbed rollback has %d writes", all)
	var several errgroup.Group
	several.SetLimit(4)
	for k := 1; k <= all; k++ {
		several.Go(func() error {
			t.Run(fmt.Sprint("write ", k), func(t *testing.T) { killAndRollBack(t, k, k%2 == 0) })
			return nil
		})
	}
	_ = several.Wait()
}

func killAndRollBack(t *testing.T, k int, isDone bool) {
	r := updated(t)
	if _, killed := r.kill(k, isDone); !killed {
		t.Fatal("the rollback was not killed")
	}
	err := shared.Client(t).CoordinationV1().Leases(session.DefaultNamespace).Delete(t.Context(), lock.Name(r.name),
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	begun := *r.record().Newest()
	if begun.Rollback != nil && begun.State == record.Completed { // the rollback was complete
		if output := r.expectFailure(r.rollback()...); !strings.Contains(output, "name the revision to go to") {
			t.Errorf("another rollback: got\n%s\nwant an error on the revision", output)
		}
	} else {
		r.must(r.rollback("--reason", "the second")...)
	}
	r.expectRolledBack()
	rollback := r.record().Newest().Rollback
	if begun.Rollback != nil && *rollback != *begun.Rollback ||
		begun.Rollback == nil && rollback.Reason != "the second" {
		t.Errorf("the rollback in the history has changed from %+v to %+v", begun.Rollback, rollback)
	}
}

// pause runs the program until it changes ConfigMap web. The returned function lets the program continue, waits until
// it ends, and returns its output.
func (r *testRelease) pause(args ...string) (resume func() string) {
	r.Helper()
	var once sync.Once
	reached, resumed := make(chan struct{}), make(chan struct{})
	address := r.serve(func(forward http.Handler, w http.ResponseWriter, request *http.Request) {
		if isWrite(request) && strings.HasSuffix(request.URL.Path, "/configmaps/web") {
			once.Do(func() { close(reached) })
			<-resumed
		}
		forward.ServeHTTP(w, request)
	})
	command, out := r.command(address, args...)
	if err := command.Start(); err != nil {
		r.Fatal(err)
	}
	select {
	case <-reached:
	case <-time.After(patience):
		r.Fatalf("the program does not change ConfigMap web:\n%s", out)
	}
	return func() string {
		close(resumed)
		if err := command.Wait(); err != nil {
			r.Errorf("%v: %v\n%s", args, err, out)
		}
		return out.String()
	}
}

// awaitLock starts the program, which must wait for the lock.
func (r *testRelease) awaitLock(args ...string) (*exec.Cmd, *programOutput) {
	r.Helper()
	command, out := r.command("", append(args, "--wait-lock")...)
	if err := command.Start(); err != nil {
		r.Fatal(err)
	}
	sandboxtest.Eventually(r, "it waits for the lock", func(context.Context) bool {
		return strings.Contains(out.String(), "the lock of the release is held by ")
	})
	return command, out
}

// If two rollbacks run at the same time, only one takes effect. The other one does not undo it.
func TestTwoConcurrentRollbacks(t *testing.T) {
	r := updated(t)
	resume := r.pause(r.rollback("--reason", "the first")...)
	if output := r.expectFailure(r.rollback()...); !strings.Contains(output, "blocked by ApplyRunning: ") ||
		!strings.Contains(output, "the rollback has not started") {
		t.Errorf("a second rollback: got output\n%s\nwant it blocked by ApplyRunning", output)
	}
	waiting, out := r.awaitLock(r.rollback("--reason", "the third")...)
	resume()
	if err := waiting.Wait(); err == nil || !strings.Contains(out.String(), "name the revision to go to") {
		t.Errorf("a rollback that has waited ends with %v:\n%s", err, out)
	}
	r.expectRolledBack()
	if rollback := r.record().Newest().Rollback; rollback.Reason != "the first" {
		t.Errorf("the rollback in the history: %+v", rollback)
	}
}

// A rollback does not begin while the update runs. With --wait-lock, it waits for the update and rolls it back.
func TestRollbackDuringAnUpdate(t *testing.T) {
	r := newRolledRelease(t)
	resume := r.pause(r.update()...)
	if output := r.expectFailure(r.rollback()...); !strings.Contains(output, "blocked by ApplyRunning: ") {
		t.Errorf("a rollback: got output\n%s\nwant it blocked by ApplyRunning", output)
	}
	waiting, out := r.awaitLock(r.rollback("--reason", "it was slow")...)
	resume()
	if err := waiting.Wait(); err != nil {
		t.Errorf("a rollback that has waited: %v\n%s", err, out)
	}
	r.expectRolledBack()
}
