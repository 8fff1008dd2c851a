package record_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/reason"
)

const configName = "runlevel-release-web"

// anyZone compares times, not zones: JSON gives them in the machine's.
var anyZone = cmpopts.EquateApproxTime(0)

// full is a record with something in every field.
func full() *record.Record {
	completed := at(2)
	object := kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	return &record.Record{
		Release: "web", LastRevision: 1,
		History: record.History{{
			Revision: 1, Files: &record.KeptFiles{
				Digest: "sha256:abc",
				Pieces: []types.UID{"u"},
			}, State: record.Completed, Version: "1.2.3", Hash: "abc", Source: "registry.example/web@sha256:abc",
			Mode:    "Update",
			Started: at(1), Completed: &completed, Forced: []string{"disk"}, Tombstones: []kinds.ID{object},
		}},
		Tombstones: []record.Tombstone{{ID: object, UID: "u", Version: "1.2.3", RequestedAt: at(1)}},
		Kinds:      []record.AppliedKind{{Group: "apps", Kind: "Deployment"}},
		Jobs:       []record.Job{{ID: object, UID: "u", Sum: "s"}},
		Waits:      []record.ObjectWait{{ID: object, For: "1 of 3 <pods> & more", Since: at(1)}},
		Durations:  map[string]record.Durations{"update": {All: 12.5, Nodes: map[string]float64{"level 10, web": 3.1}}},
	}
}

func load(t *testing.T, s *record.Store) *record.Record {
	t.Helper()
	r, found, err := s.Load(t.Context())
	if err != nil || !found {
		t.Fatalf("the record is found: %t, error %v", found, err)
	}
	return r
}

func save(t *testing.T, s *record.Store, r *record.Record) {
	t.Helper()
	if err := s.Save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// saveLocked saves a record while there is a Lease, which gets a copy.
func saveLocked(t *testing.T, namespace string, s *record.Store, r *record.Record) {
	t.Helper()
	hold, err := lock.Lock{
		Client:    cluster.Client(t),
		Namespace: namespace,
		Release:   "web",
	}.Acquire(t.Context(), lock.Options{})
	if err == nil {
		err = hold.Release(s.Save(t.Context(), r))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func config(t *testing.T, namespace string) *corev1.ConfigMap {
	t.Helper()
	found, err := cluster.Client(t).CoreV1().ConfigMaps(namespace).Get(t.Context(), configName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// edit changes the ConfigMap as a person would.
func edit(t *testing.T, namespace string, change func(*corev1.ConfigMap)) {
	t.Helper()
	found := config(t, namespace)
	change(found)
	if _, err := cluster.Client(t).CoreV1().ConfigMaps(namespace).Update(t.Context(), found,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestSavedRecordIsLoaded(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	empty, found, err := s.Load(t.Context())
	if err != nil || found {
		t.Fatalf("before the first apply, the record is found: %t, error %v", found, err)
	}
	if diff := cmp.Diff(&record.Record{Release: "web"}, empty); diff != "" {
		t.Errorf("before the first apply (-want +got):\n%s", diff)
	}
	save(t, s, full())
	if diff := cmp.Diff(full(), load(t, record.NewStore(cluster.Client(t), namespace, "web")), anyZone); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
	if labels := config(t, namespace).Labels; !maps.Equal(labels, map[string]string{lock.Label: "web"}) {
		t.Errorf("the ConfigMap has labels %v", labels)
	}
	r := full()
	r.Begin(record.HistoryEntry{Version: "2", Hash: "b", Started: at(5)})
	save(t, s, r) // over its own last write
	if got := load(t, s).Newest().Version; got != "2" {
		t.Errorf("saved again, the newest version is %s, want 2", got)
	}
}

func TestUnchangedRecordIsNotWritten(t *testing.T) {
	namespace := cluster.Namespace(t)
	save(t, record.NewStore(cluster.Client(t), namespace, "web"), full())
	s := record.NewStore(cluster.Client(t), namespace, "web")
	r := load(t, s)
	edit(t, namespace, func(c *corev1.ConfigMap) { metav1.SetMetaDataLabel(&c.ObjectMeta, "team", "shop") })
	save(t, s, r) // a write would fail with a conflict
	before := config(t, namespace).ResourceVersion
	load(t, s)
	save(t, s, r)
	if got := config(t, namespace).ResourceVersion; got != before {
		t.Errorf("the ConfigMap has version %s, and had %s before", got, before)
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	tests := map[string]struct {
		isThere bool // before both come
		do      func(t *testing.T, namespace string)
	}{
		"another has written": {true, func(t *testing.T, namespace string) {
			edit(t, namespace, func(c *corev1.ConfigMap) { metav1.SetMetaDataLabel(&c.ObjectMeta, "team", "shop") })
		}},
		"another has made it": {false, func(t *testing.T, namespace string) {
			save(t, record.NewStore(cluster.Client(t), namespace, "web"), full())
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			s := record.NewStore(cluster.Client(t), namespace, "web")
			if test.isThere {
				save(t, record.NewStore(cluster.Client(t), namespace, "web"), full())
			}
			r, _, err := s.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			test.do(t, namespace)
			r.AddKinds(record.AppliedKind{Kind: "Secret"})
			err = s.Save(t.Context(), r)
			want := fmt.Sprintf(`record of release "web", ConfigMap %s/%s: another program has written it since it was read: load it again`, namespace, configName)
			if !errors.Is(err, record.ErrChanged) || err.Error() != want || reason.Of(err) != record.ReasonChanged {
				t.Fatalf("the error is\n%v, want\n%s", err, want)
			}
			if err := s.Save(t.Context(), r); !errors.Is(err, record.ErrChanged) {
				t.Errorf("the error of the second try is %v", err)
			}
			if r, _, err = s.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.AddKinds(record.AppliedKind{Kind: "Secret"})
			save(t, s, r)
		})
	}
}

// The server has executed the request, and its response is lost.
func TestOwnWriteIsNotAConflict(t *testing.T) {
	namespace := cluster.Namespace(t)
	isLossy, isDown := false, false
	client := sandboxtest.Tap(cluster.Sandbox(t).Config,
		func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if isDown {
				return nil, errors.New("no answer")
			}
			response, err := next.RoundTrip(request)
			if err == nil && isLossy && request.Method != http.MethodGet {
				response.Body.Close()
				return nil, errors.New("the connection broke")
			}
			return response, err
		})
	s := record.NewStore(kubernetes.NewForConfigOrDie(client), namespace, "web")
	for _, version := range []string{"1", "2"} { // created, updated
		r, _, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Begin(record.HistoryEntry{Version: version, Hash: version})
		isLossy = true
		if err := s.Save(t.Context(), r); err == nil || !strings.Contains(err.Error(), "the connection broke") {
			t.Errorf("version %s: the error is %v", version, err)
		}
		isLossy, isDown = false, true
		r.Complete(at(1))
		if err := s.Save(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("version %s: the error is %v", version, err)
		}
		isDown = false
		r.AddKinds(record.AppliedKind{Kind: "Secret"})
		save(t, s, r)
		if got := load(t, s).Applied(); got == nil || got.Version != version {
			t.Errorf("version %s: applied is %v", version, got)
		}
	}
	before := load(t, s)
	waiting := *before
	waiting.Waits = full().Waits
	isLossy = true
	if err := s.Save(t.Context(), &waiting); err == nil {
		t.Error("saved, and the answer is lost, without an error")
	}
	isLossy = false
	save(t, s, before) // the loaded record, which no longer exists on the cluster
	if got := load(t, s).Waits; len(got) > 0 {
		t.Errorf("the record has waits %v, want none", got)
	}
}

func TestFieldsOfOthersAreKept(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	save(t, s, full())
	edit(t, namespace, func(c *corev1.ConfigMap) {
		c.Data["record.json"] = strings.Replace(c.Data["record.json"], `{`, `{"weather": {"tomorrow": "rain"},`, 1)
		c.Data["note"] = "ask Anna first"
		c.Labels = map[string]string{"team": "shop"}
	})
	r := load(t, s)
	r.AddKinds(record.AppliedKind{Kind: "Secret"})
	save(t, s, r)
	got := config(t, namespace)
	if !strings.Contains(got.Data["record.json"], "\"tomorrow\": \"rain\"") || got.Data["note"] != "ask Anna first" {
		t.Errorf("a newer program's field, or a note, is lost:\n%s", got.Data)
	}
	if !maps.Equal(got.Labels, map[string]string{"team": "shop", lock.Label: "web"}) {
		t.Errorf("the ConfigMap has labels %v", got.Labels)
	}
	if diff := cmp.Diff(r, load(t, s), anyZone); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

func TestUnreadableRecordIsRefusedAndKept(t *testing.T) {
	const wayOut = ": restore it from a backup, or delete the ConfigMap; the next apply then uses the copy in the " +
		"Lease, which lacks most of the history"
	tests := map[string]struct{ text, want string }{
		"newer": {`{"format": 2, "history": "elsewhere"}`,
			": a newer runlevel wrote it, in format 2, and this one reads up to 1: use that one"},
		"empty":   {"", ": unexpected end of JSON input" + wayOut},
		"cut off": {"{\n \"format\": 1,\n \"rele", ": unexpected end of JSON input" + wayOut},
		"no JSON": {"{\n  format: 1\n}",
			": invalid character 'f' looking for beginning of object key string" + wayOut},
		"escapes": {"\x1b[31m", `: invalid character '\x1b' looking for beginning of value` + wayOut},
		"wrong type": {"{\"format\": 1, \"release\": \"web\",\n \"history\": [{\"state\": 7}]}",
			": cannot unmarshal number into Go struct field HistoryEntry.Record.history.state of type " +
				"record.UpdateState" + wayOut},
		"wrong time": {`{"format": 1, "release": "web", "history": [{"state": "Partial", "started": "noon"}]}`,
			`: parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"` + wayOut},
		"no format": {`{"release": "web"}`, ": format is 0, want 1" + wayOut},
		"null":      {`null`, ": format is 0, want 1" + wayOut},
		"another's": {`{"format": 1, "release": "shop"}`, `: release is "shop", want "web"` + wayOut},
		"unknown state": {`{"format": 1, "release": "web", "history": [{"state": "Half"}]}`,
			`: history[0].state is "Half", want Partial or Completed` + wayOut},
		"endless": {`{"format": 1, "release": "` + strings.Repeat("é", 10_000) + `"}`,
			`: release is "` + strings.Repeat("é", 141) + "…" + wayOut},
		"two records": {`{"format": 1, "release": "web"} {"format": 1}`,
			": invalid character '{' after top-level value" + wayOut},
		"another's list": {`[]`, ": cannot unmarshal array into Go value of type record.header" + wayOut},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			s := record.NewStore(cluster.Client(t), namespace, "web")
			save(t, s, full())
			edit(t, namespace, func(c *corev1.ConfigMap) { c.Data["record.json"] = test.text })
			_, found, err := s.Load(t.Context())
			want := fmt.Sprintf("ConfigMap %s/%s, key record.json%s", namespace, configName, test.want)
			if err == nil || err.Error() != want || !found || reason.Of(err) != record.ReasonUnreadable {
				t.Errorf("found: %t, the error is\n%v, want\n%s", found, err, want)
			}
			if err := s.Save(t.Context(), full()); !errors.Is(err, record.ErrChanged) {
				t.Errorf("saved all the same, the error is %v", err)
			}
			if got := config(t, namespace).Data["record.json"]; got != test.text {
				t.Errorf("the record is overwritten with\n%s", got)
			}
		})
	}
}

func TestAllReleasesAreListed(t *testing.T) {
	namespace := cluster.Namespace(t)
	for _, name := range []string{"web", "shop", "broken", "bad"} {
		save(t, record.NewStore(cluster.Client(t), namespace, name), &record.Record{Release: name})
	}
	for _, name := range []string{"broken", "bad"} {
		_, err := cluster.Client(t).CoreV1().ConfigMaps(namespace).Update(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:   "runlevel-release-" + name,
				Labels: map[string]string{lock.Label: name},
			},
		}, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := record.List(t.Context(), cluster.Client(t), namespace)
	var names []string
	for _, r := range all {
		names = append(names, r.Release)
	}
	if !slices.Equal(names, []string{"shop", "web"}) {
		t.Errorf("releases are %v, want shop and web", names)
	}
	for _, name := range []string{"bad", "broken"} {
		if want := fmt.Sprintf("ConfigMap %s/runlevel-release-%s, key record.json: there is none: restore", namespace,
			name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is\n%v, want\n%s", err, want)
		}
	}
	if all, err := record.List(t.Context(), cluster.Client(t), namespace+"-absent"); err != nil || len(all) > 0 {
		t.Errorf("without a namespace: %v, error %v", all, err)
	}
}

func TestTombstonesOfOldEntriesAreDroppedIfTheyDoNotFit(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	r := &record.Record{Release: "web"}
	const each = 200
	for version := range 100 {
		e := record.HistoryEntry{Version: fmt.Sprint(version), Hash: fmt.Sprint(version)}
		for i := range each {
			e.Tombstones = append(e.Tombstones,
				kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("%s-%d", e.Version, i)})
		}
		r.Begin(e)
	}
	save(t, s, r)
	if got := len(r.History[99].Tombstones); got != each {
		t.Errorf("saving took %d tombstones from the caller's record", each-got)
	}
	got := load(t, s)
	if len(got.History) != 100 || len(got.History[0].Tombstones) != each || len(got.History[99].Tombstones) > 0 {
		t.Errorf("%d entries are left, the newest with %d tombstones, the oldest with %d",
			len(got.History), len(got.History[0].Tombstones), len(got.History[99].Tombstones))
	}
}

func TestDurationsAreDroppedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		theirs int // bytes that another client has in the ConfigMap
		keeps  bool
	}{
		"there is room":                   {0, true},
		"there is none":                   {1<<20 - 8000, false},
		"there is none with fingerprints": {1<<20 - 13000, false},
		"just enough room":                {1<<20 - 17000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			store := record.NewStore(cluster.Client(t), namespace, "web")
			save(t, store, &record.Record{Release: "web"})
			edit(t, namespace, func(config *corev1.ConfigMap) { config.Data["theirs"] = strings.Repeat("x", c.theirs) })
			wanted := full()
			wanted.Durations["install"] = record.Durations{Nodes: map[string]float64{strings.Repeat("n", 10000): 1}}
			wanted.Fingerprints = make([]byte, 4000)
			store = record.NewStore(cluster.Client(t), namespace, "web")
			load(t, store)
			save(t, store, wanted)

			got := load(t, store)
			if keeps := len(got.Durations) > 0; keeps != c.keeps {
				t.Errorf("durations are kept: %t", keeps)
			}
			if len(got.History[0].Tombstones) == 0 || len(got.Fingerprints) == 0 {
				t.Error("more important fields were dropped")
			}
		})
	}
}

func TestRecordThatDoesNotFitIsRefused(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	save(t, s, full())
	r := load(t, s)
	for i := range 100_000 {
		r.Jobs = append(r.Jobs,
			record.Job{ID: kinds.ID{Group: "batch", Kind: "Job", Namespace: "shop", Name: fmt.Sprint("job-", i)}})
		r.Kinds = append(r.Kinds, record.AppliedKind{Group: "shop.example", Kind: fmt.Sprint("Kind", i)})
	}
	err := s.Save(t.Context(), r)
	const want = "and a ConfigMap has room for 1048576: 100001 kinds, 100001 finished jobs, 1 unfinished delete, 1 wait"
	if err == nil || !strings.HasPrefix(err.Error(), `record of release "web": it needs `) ||
		!strings.HasSuffix(err.Error(), want) || reason.Of(err) != record.ReasonTooBig {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
	if diff := cmp.Diff(full(), load(t, s), anyZone); diff != "" {
		t.Errorf("the record is another than before (-want +got):\n%s", diff)
	}
}

func TestNamesOfReleasesAreChecked(t *testing.T) {
	do := map[string]func(s *record.Store) error{
		"load": func(s *record.Store) error { _, _, err := s.Load(t.Context()); return err },
		"save": func(s *record.Store) error { return s.Save(t.Context(), &record.Record{}) },
	}
	for verb, run := range do {
		for _, name := range []string{"", "Web", "a/b", "a.b", "-", strings.Repeat("a", 64)} {
			want := fmt.Sprintf("release name %q: use up to 63 lower-case letters, digits and dashes, with a letter "+
				"or digit at both ends", name)
			if err := run(record.NewStore(nil, "shop", name)); err == nil || err.Error() != want {
				t.Errorf("%s: the error is\n%v, want\n%s", verb, err, want)
			}
		}
	}
}

func TestRecordOfAnotherReleaseIsNotSaved(t *testing.T) {
	err := record.NewStore(nil, "shop", "web").Save(t.Context(), &record.Record{Release: "db"})
	if want := `the record belongs to release "db", not to "web"`; err == nil || err.Error() != want {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	namespace := cluster.Namespace(t)
	for verb, do := range map[string]func(s *record.Store) error{
		"get":    func(s *record.Store) error { _, _, err := s.Load(t.Context()); return err },
		"create": func(s *record.Store) error { return s.Save(t.Context(), &record.Record{Release: "web"}) },
	} {
		client := kubernetes.NewForConfigOrDie(cluster.Account(t, namespace, verb))
		err := do(record.NewStore(client, namespace, "web"))
		want := fmt.Sprintf(`release "web": %s configmaps runlevel-release-web in namespace %q: `, verb, namespace)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), ":"+verb+`"`) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("the error is\n%v, want %s and the account, in one line", err, want)
		}
		if got := reason.Of(err); got != record.ReasonDenied {
			t.Errorf("its reason is %q, want %s", got, record.ReasonDenied)
		}
	}
}

func TestDeadlineEndsLoading(t *testing.T) {
	ctx, end := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer end()
	_, _, err := record.NewStore(cluster.Client(t), "shop", "web").Load(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || apierrors.IsNotFound(err) {
		t.Errorf("the error is %v", err)
	}
}

// deleteRecord deletes the ConfigMap of a record.
func deleteRecord(t *testing.T, namespace string) {
	t.Helper()
	if err := cluster.Client(t).CoreV1().ConfigMaps(namespace).Delete(t.Context(), configName,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// What an update needs of a record is in the Lease, too.
func TestDeletedRecordIsRestoredFromItsCopy(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	saveLocked(t, namespace, s, full())
	deleteRecord(t, namespace)
	restored, found, err := s.Load(t.Context())
	if err != nil || !found {
		t.Fatalf("found: %t, error %v", found, err)
	}
	want := full()
	if diff := cmp.Diff([]any{want.Applied(), want.Newest(), want.Tombstones, want.Kinds, want.Jobs},
		[]any{restored.Applied(), restored.Newest(), restored.Tombstones, restored.Kinds, restored.Jobs}); diff != "" {
		t.Error("the restored record (-want +got):\n", diff)
	}
	if loss := s.Loss(); !strings.HasPrefix(loss, "most of the history: ConfigMap "+namespace+"/"+configName) {
		t.Errorf("the loss is %q", loss)
	}
	all, err := record.List(t.Context(), cluster.Client(t), namespace)
	if err != nil || len(all) != 1 || len(all[0].Tombstones) != len(want.Tombstones) {
		t.Errorf("listed are %v, error %v", all, err)
	}
	save(t, s, restored)
	if _, _, err := record.NewStore(cluster.Client(t), namespace, "web").Load(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDeletedRecordIsWrittenAgain(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	save(t, s, full())
	deleteRecord(t, namespace)
	known := full()
	known.AddKinds(record.AppliedKind{Kind: "Secret"})
	save(t, s, known)
	read, _, err := record.NewStore(cluster.Client(t), namespace, "web").Load(t.Context())
	if err != nil || len(read.History) != len(known.History) || len(read.Kinds) != len(known.Kinds) {
		t.Errorf("got record %+v, error %v", read, err)
	}
	if loss := s.Loss(); !strings.Contains(loss, "was deleted meanwhile, and is written again") {
		t.Errorf("the loss is %q", loss)
	}
}

func TestCopyOfALargeRecordKeepsItsDeletes(t *testing.T) {
	namespace := cluster.Namespace(t)
	s := record.NewStore(cluster.Client(t), namespace, "web")
	large := full()
	for i := range 1500 {
		name := fmt.Sprint("job-", strings.Repeat("x", 200), i)
		large.RememberJob(record.Job{ID: kinds.NewID(kinds.Job, "web", name)})
	}
	saveLocked(t, namespace, s, large)
	deleteRecord(t, namespace)
	restored, _, err := s.Load(t.Context())
	if err != nil || len(restored.Jobs) > 0 || len(restored.Tombstones) != len(large.Tombstones) {
		t.Errorf("%d Jobs and %d deletes are restored, error %v", len(restored.Jobs), len(restored.Tombstones), err)
	}
}
