package session_test

import (
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
)

// keeping keeps the files of a version, as the command line does.
func (r release) keeping(version, text string) func(*session.Options) {
	r.Helper()
	folder := fstest.MapFS{"a.yaml": {Data: []byte(text)}, "version": {Data: []byte(version)}}
	packed, err := files.Pack(folder, []string{"a.yaml", "version"}, []byte("{}"))
	if err != nil {
		r.Fatal(err)
	}
	return func(o *session.Options) { o.Files.Packed = packed }
}

// keepVersion applies a version, and keeps its files.
func (r release) keepVersion(version string, change ...func(*session.Options)) *session.Outcome {
	r.Helper()
	return r.must(version, settings, append(change, force, r.keeping(version, settings))...)
}

// kept returns the Secrets of the copies.
func (r release) kept() []corev1.Secret {
	r.Helper()
	found, err := test.Client(r).CoreV1().Secrets(r.namespace).List(r.Context(),
		metav1.ListOptions{LabelSelector: files.Label})
	if err != nil {
		r.Fatal(err)
	}
	return found.Items
}

// keptVersions returns the versions of which there are copies.
func (r release) keptVersions() string {
	r.Helper()
	var versions []string
	for _, secret := range r.kept() {
		versions = append(versions, secret.Annotations["runlevel.dev/version"])
	}
	slices.Sort(versions)
	return strings.Join(versions, " ")
}

// forFiles returns the requests for copies.
func forFiles(sent []sandboxtest.Request) string {
	var all []string
	for _, request := range sent {
		if request.Resource == "secrets" {
			all = append(all, request.Verb)
		}
	}
	return strings.Join(all, " ")
}

// TestKeepingFilesCostsLittle checks the requests: a list and a write for a new version, and a list of metadata if
// the version is already stored.
func TestKeepingFilesCostsLittle(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	sent := &traffic{}
	tapped := r.through(sent.note)
	tapped.keepVersion("1.0.0")
	if got := forFiles(sent.take()); got != "list post" {
		t.Errorf("the first apply sends %s", got)
	}
	tapped.keepVersion("1.0.0")
	if got := forFiles(sent.take()); got != "list" {
		t.Errorf("the second one sends %s", got)
	}
	tapped.must("1.0.1", settings)
	tapped.keepVersion("1.0.0")
	if got := forFiles(sent.take()); got != "list list" {
		t.Errorf("an apply without files and one back to the first version send %s", got)
	}
	if entry := r.record().Newest(); entry.Revision != 3 || entry.Files.Digest != r.record().History[2].Files.Digest ||
		len(r.kept()) != 1 {
		t.Errorf("the newest entry is %+v, and there are %d Secrets", entry, len(r.kept()))
	}
}

// TestFilesOfTheLastVersions are kept, and of the versions that run and ran before.
func TestFilesOfTheLastVersions(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	two := func(o *session.Options) { o.Files.HistoryMax = 2 }
	for patch := range 3 {
		r.keepVersion(fmt.Sprint("1.0.", patch), two)
	}
	if got := r.keptVersions(); got != "1.0.0 1.0.1 1.0.2" { // 1.0.1 ran when 1.0.2 began, and 1.0.0 before 1.0.1
		t.Errorf("kept are %s", got)
	}
	r.keepVersion("1.0.2", two)
	if got := r.keptVersions(); got != "1.0.1 1.0.2" {
		t.Errorf("kept in place, kept are %s", got)
	}
	for patch := 3; patch < 6; patch++ { // these updates never complete
		version := fmt.Sprint("1.0.", patch)
		failed := errors.New("killed")
		outcome := r.roll(t.Context(), version, settings, two, force, r.keeping(version, settings),
			func(o *session.Options) {
				o.Observer = observer{onRecorded: func() error { return failed }}
			})
		if !errors.Is(outcome.Err, failed) {
			t.Fatal(outcome.Err)
		}
	}
	if got := r.keptVersions(); got != "1.0.1 1.0.2 1.0.4 1.0.5" {
		t.Errorf("after updates that were not completed, kept are %s", got)
	}
}

// TestCopiesOutliveTheRecord checks that new revisions continue after the revisions of the copies.
func TestCopiesOutliveTheRecord(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	for patch := range 3 {
		r.keepVersion(fmt.Sprint("1.0.", patch))
	}
	client := test.Client(t)
	name := "runlevel-release-" + r.name
	err := errors.Join(client.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}),
		client.CoordinationV1().Leases(r.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	four := func(o *session.Options) { o.Files.HistoryMax = 4 }
	r.keepVersion("1.0.3", four)
	if got, revision := r.keptVersions(), r.record().Newest().Revision; got != "1.0.0 1.0.1 1.0.2 1.0.3" ||
		revision != 4 {
		t.Errorf("kept are %s, and the newest has revision %d", got, revision)
	}
	r.keepVersion("1.0.4", four)
	if got := r.keptVersions(); got != "1.0.1 1.0.2 1.0.3 1.0.4" {
		t.Errorf("one more than are kept: %s", got)
	}
}

// TestAnApplyRepairsACopy checks copies that were deleted, or replaced by another copy.
func TestAnApplyRepairsACopy(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.keepVersion("1.0.0")
	secrets := test.Client(t).CoreV1().Secrets(r.namespace)
	piece := r.kept()[0]
	replaced := piece.DeepCopy()
	replaced.ObjectMeta = metav1.ObjectMeta{Name: piece.Name, Labels: piece.Labels, Annotations: piece.Annotations}
	replaced.Data["files"] = []byte("other")
	for _, instead := range []*corev1.Secret{nil, replaced} {
		if err := secrets.Delete(t.Context(), piece.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if instead != nil {
			if _, err := secrets.Create(t.Context(), instead, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if outcome := r.keepVersion("1.0.0"); len(outcome.FileWarnings) > 0 {
			t.Errorf("warnings are %v", outcome.FileWarnings)
		}
		if got := r.kept()[0].Annotations["runlevel.dev/revision"]; got != "1" {
			t.Errorf("the copy is of revision %s", got)
		}
		store := files.Store{Cluster: r.connect(), Namespace: r.namespace, Release: r.name}
		if _, err := store.Read(t.Context(), r.record().Newest().Files.Digest); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutTheRightToKeepFiles an apply has one warning, which names the right, and a record that knows why.
func TestWithoutTheRightToKeepFiles(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.config = test.Account(t, r.namespace, "user",
		rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{"configmaps"},
			Verbs:     []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
		rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"},
			Resources: []string{"leases"},
			Verbs:     []string{"get", "create", "update"},
		},
	)
	awaitRights(t, r, settings)
	outcome := r.keepVersion("1.0.0")
	want := fmt.Sprintf("this user may not list secrets in namespace %s", r.namespace)
	if len(outcome.FileWarnings) != 1 || outcome.FileWarnings[0] != want {
		t.Errorf("the warnings are %q, want %q", outcome.FileWarnings, want)
	}
	if entry := r.record().Newest(); entry.Files == nil || entry.Files.NotKept != want {
		t.Errorf("the record has %+v", entry.Files)
	}
}

// TestKilledWhileFilesAreKept at any write of a copy of three pieces, or of the record after it: the next apply
// completes it.
func TestKilledWhileFilesAreKept(t *testing.T) {
	t.Parallel()
	for survived := range 5 {
		r := newRelease(t)
		large := r.keeping("1.0.0", incompressible(2500<<10))
		var writes atomic.Int32
		killed := errors.New("killed")
		mortal := r.through(func(request *http.Request) error {
			parsed, _ := sandboxtest.ParseRequest(request)
			isWrite := request.Method != http.MethodGet &&
				(parsed.Resource == "secrets" || parsed.Resource == "configmaps")
			if isWrite && int(writes.Add(1)) > survived {
				return killed
			}
			return nil
		})
		if outcome := mortal.roll(t.Context(), "1.0.0", settings, large, func(o *session.Options) {
			o.Apply.Timeout = time.Second
		}); outcome.Err == nil {
			t.Fatalf("not killed after %d writes", survived)
		}
		r.must("1.0.0", settings, large)
		store := files.Store{Cluster: r.connect(), Namespace: r.namespace, Release: r.name}
		if _, err := store.Read(t.Context(), r.record().Newest().Files.Digest); err != nil || len(r.kept()) != 3 {
			t.Errorf("killed after %d writes, the copy has %d pieces: %v", survived, len(r.kept()), err)
		}
	}
}

// incompressible returns a text that can't be compressed to less than its size.
func incompressible(size int) string {
	text, random := make([]byte, size), rand.New(rand.NewSource(1))
	for i := range text {
		text[i] = byte(random.Intn(256))
	}
	return string(text)
}
