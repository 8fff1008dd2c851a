package precondition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// release loads a plain folder of manifests, by file name.
func release(t testing.TB, version string, manifests map[string]string) *payload.Payload {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range manifests {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	if len(files) == 0 {
		files["0000_10_web_config.yaml"] = &fstest.MapFile{Data: []byte(configMap("config", ""))}
	}
	loaded, _, err := payload.Load(t.Context(), files, payload.Options{Name: "web", Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// configMap returns a ConfigMap manifest in namespace web, with an annotation unless annotation is empty.
func configMap(name, annotation string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: web, annotations: {" +
		annotation + "}}\n"
}

const tombstoneAnnotation = `release.openshift.io/delete: "true"`

var old = kinds.ID{Kind: "ConfigMap", Namespace: "web", Name: "old"}

// history returns the record of a cluster on which versions were applied, the newest first. A version that ends with
// "..." was only begun.
func history(versions ...string) *record.Record {
	r := &record.Record{Release: "web"}
	for i, version := range versions {
		done := ago(time.Duration(i+1) * 24 * time.Hour)
		e := record.HistoryEntry{
			State:     record.Completed,
			Version:   version,
			Started:   ago(time.Duration(i+1)*24*time.Hour + time.Hour),
			Completed: &done,
		}
		if begun, isBegun := strings.CutSuffix(version, "..."); isBegun {
			e.State, e.Version, e.Completed = record.Partial, begun, nil
		}
		r.History = append(r.History, e)
	}
	return r
}

// asked returns a delete that 4.5.0 has requested two hours ago, with its present state.
func asked(seen tombstone.Observation) precondition.Delete {
	return precondition.Delete{
		Tombstone: record.Tombstone{ID: old, UID: "1", Version: "4.5.0", RequestedAt: ago(2 * time.Hour), Sent: true},
		Seen:      seen,
	}
}

// shown returns findings with all their fields, line by line.
func shown(findings []precondition.Finding) string {
	var lines []string
	for _, f := range findings {
		line := fmt.Sprintf("%s %s", f.Severity, f)
		if f.Since != nil {
			line += " | since " + f.Since.UTC().Format(time.RFC3339)
		}
		if f.Object != nil {
			line += " | " + f.Object.String()
		}
		if f.File != "" {
			line += " | " + f.File
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, f *precondition.Facts, wanted string) {
	t.Helper()
	f.Now = now
	if f.Record == nil {
		f.Record = history()
	}
	if f.Payload == nil {
		f.Payload = release(t, "4.6.0", nil)
	}
	if diff := cmp.Diff(strings.TrimSpace(wanted), shown(precondition.Evaluate(f))); diff != "" {
		t.Error(diff)
	}
}

func TestPendingDeletesStopMinorUpdates(t *testing.T) {
	held := tombstone.Observation{
		State:      tombstone.Terminating,
		UID:        "1",
		Requested:  "1",
		Since:      now.Add(-5 * time.Minute),
		Finalizers: []string{"example.com/x"},
	}
	const what = "PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-04T11:55:00Z, " +
		"held by finalizer example.com/x: "
	const rest = "; resolve by: waiting for the holder of finalizer example.com/x | since 2026-05-04T11:55:00Z | " +
		"ConfigMap web/old"
	const unknown = "an update between versions that are not known, which counts as a minor one, does not begin " +
		"before it is deleted"
	for name, test := range map[string]struct {
		before []string
		to     string
		wanted string
	}{
		"minor": {[]string{"4.5.3"}, "4.6.0",
			"Blocks " + what + "the minor update from 4.5.3 to 4.6.0 does not begin before it is deleted" + rest},
		"major": {[]string{"4.5.3"}, "5.0.0",
			"Blocks " + what + "the major update from 4.5.3 to 5.0.0 does not begin before it is deleted" + rest},
		"patch": {[]string{"4.5.3"}, "4.5.4",
			"Warns " + what + "the patch update from 4.5.3 to 4.5.4 continues" + rest},
		"from a candidate": {[]string{"4.6.0-rc.1"}, "4.6.0",
			"Warns " + what + "the patch update from 4.6.0-rc.1 to 4.6.0 continues" + rest},
		"same version": {[]string{"4.5.3"}, "4.5.3",
			"Warns " + what + "applying 4.5.3 again continues" + rest},
		"install": {nil, "4.5.3", "Warns " + what + "an install continues" + rest},
		"none was completed": {[]string{"4.5.3..."}, "4.6.0",
			"Blocks " + what + "the minor update from 4.5.3 to 4.6.0 does not begin before it is deleted" + rest},
		"a started minor update continues": {[]string{"4.6.0...", "4.5.3"}, "4.6.0",
			"Warns " + what + "applying 4.6.0 again continues" + rest},
		"a patch of a started minor update": {[]string{"4.6.0...", "4.5.3"}, "4.6.1",
			"Warns " + what + "the patch update from 4.6.0 to 4.6.1 continues" + rest},
		"a patch that was begun, then minor": {[]string{"4.5.4...", "4.5.3"}, "4.6.0",
			"Blocks " + what + "the minor update from 4.5.3 to 4.6.0 does not begin before it is deleted" + rest},
		"no version to apply": {[]string{"4.5.3"}, "", "Blocks " + what + unknown + rest},
		"no applied version":  {[]string{""}, "4.5.3", "Blocks " + what + unknown + rest},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{
				Payload: release(t, test.to, nil),
				Record:  history(test.before...),
				Deletes: []precondition.Delete{asked(held)},
			}, test.wanted)
		})
	}
	t.Run("the same payload without a version", func(t *testing.T) {
		f := &precondition.Facts{
			Payload: release(t, "", nil),
			Record:  history(""),
			Deletes: []precondition.Delete{asked(held)},
		}
		f.Record.History[0].Hash = f.Payload.Hash
		expect(t, f, "Warns "+what+"applying the same payload again continues"+rest)
	})
}

func TestResolutionsOfPendingDeletes(t *testing.T) {
	const update, object = ": the minor update from 4.5.3 to 4.6.0 does not begin before it is deleted; resolve by: ",
		" | ConfigMap web/old"
	since := now.Add(-72 * time.Hour)
	terminating := func(finalizers []string, remains ...string) tombstone.Observation {
		return tombstone.Observation{
			State:      tombstone.Terminating,
			Requested:  "1",
			UID:        "1",
			Since:      since,
			Finalizers: finalizers,
			Remains:    remains,
		}
	}
	unclear, ending := terminating(nil, "not known yet"), terminating(nil, "2 Pods")
	unclear.Contents, ending.Contents = tombstone.Unclear, tombstone.Ending
	for name, test := range map[string]struct {
		seen   tombstone.Observation
		wanted string
	}{
		"deleted": {tombstone.Observation{State: tombstone.Absent, Requested: "1"}, ""},
		"finalizers": {terminating([]string{"a/b", "c/d"}),
			"Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since " +
				"2026-05-01T12:00:00Z, held by finalizers a/b, c/d" + update +
				"waiting for the holders of finalizers a/b, c/d | since 2026-05-01T12:00:00Z" + object},
		"content": {terminating(nil, "2 Widgets"),
			"Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-01T12:00:00Z " +
				"(2 Widgets)" + update + "removing what is left in it | since 2026-05-01T12:00:00Z" + object},
		"both": {terminating([]string{"a/b"}, "2 Widgets"),
			"Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since " +
				"2026-05-01T12:00:00Z, held by finalizer a/b (2 Widgets)" + update +
				"waiting for the holder of finalizer a/b, " +
				"and removing what is left in it | since 2026-05-01T12:00:00Z" + object},
		"nothing": {terminating(nil),
			"Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-01T12:00:00Z" +
				update + "waiting: nothing holds it | since 2026-05-01T12:00:00Z" + object},
		"not looked at": {unclear,
			"Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-01T12:00:00Z " +
				"(not known yet)" + update +
				"waiting, unless something in it is held, which is not known yet | since " +
				"2026-05-01T12:00:00Z" + object},
		"ending": {ending, "Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since " +
			"2026-05-01T12:00:00Z (2 Pods)" + update +
			"waiting until the rest of its content is deleted | since 2026-05-01T12:00:00Z" + object},
		"not reached": {tombstone.Observation{
			State:     tombstone.Present,
			Requested: "1",
			UID:       "1",
		}, "Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is still there, and not terminating" +
			update +
			"applying the same version again, or deleting it by hand | since " +
			"2026-05-04T10:00:00Z" + object},
		"not known": {tombstone.Observation{
			State:     tombstone.Unknown,
			Requested: "1",
			Why:       "the server is down",
		}, "Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, may still be there, which is not known: " +
			"the server is down" + update +
			"retrying when the cluster answers | since 2026-05-04T10:00:00Z" + object},
		"reappeared": {tombstone.Observation{
			State:     tombstone.Reappeared,
			Requested: "1",
			UID:       "2",
			MadeBy:    "kubectl at noon",
		},
			"Warns PendingDelete: ConfigMap web/old was deleted, and was created again by kubectl at noon: " +
				"nothing deletes it any more; resolve by: stopping the client that created it | since " +
				"2026-05-04T10:00:00Z" + object},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{Record: history("4.5.3"), Deletes: []precondition.Delete{asked(test.seen)}},
				test.wanted)
		})
	}
	t.Run("several", func(t *testing.T) {
		item, other := asked(terminating([]string{"a/b"})), asked(terminating([]string{"a/b"}))
		item.Seen.Since, other.ID.Name = since.Add(time.Hour), "older"
		f := &precondition.Facts{Record: history("4.5.3"), Deletes: []precondition.Delete{item, other}}
		expect(t, f, "Blocks PendingDelete: ConfigMap web/older and 1 more, which 4.5.0 deletes, are terminating "+
			"since 2026-05-01T12:00:00Z, held by finalizer a/b: "+
			"the minor update from 4.5.3 to 4.6.0 does not begin before they are deleted; resolve by: waiting for "+
			"the holder of "+
			"finalizer a/b | since 2026-05-01T12:00:00Z | ConfigMap web/older")
	})
	t.Run("not asked for yet", func(t *testing.T) {
		item := asked(tombstone.Observation{State: tombstone.Present, Requested: "1", UID: "1"})
		item.Sent = false
		f := &precondition.Facts{Record: history("4.5.3"), Deletes: []precondition.Delete{item}}
		expect(t, f, "Blocks PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is present, and its delete "+
			"has not been requested yet"+update+
			"applying 4.5.0 to its end, or deleting it by hand | since 2026-05-04T10:00:00Z"+object)
		f.Payload = release(t, "4.5.4",
			map[string]string{"0000_10_web_old.yaml": configMap("old", tombstoneAnnotation)})
		expect(t, f, "") // this update does so
	})
	t.Run("of no version", func(t *testing.T) {
		item := asked(terminating(nil))
		item.Version = ""
		expect(t, &precondition.Facts{
			Payload: release(t, "4.5.4", nil),
			Record:  history("4.5.3"),
			Deletes: []precondition.Delete{item},
		},
			"Warns PendingDelete: ConfigMap web/old, which is to be deleted, is terminating since "+
				"2026-05-01T12:00:00Z: the patch update from 4.5.3 to 4.5.4 continues; resolve by: waiting: nothing holds "+
				"it | since 2026-05-01T12:00:00Z"+object)
	})
}

func TestNeededObjectIsTerminating(t *testing.T) {
	since := now.Add(-time.Hour)
	const what, rest = "TerminatingObject: ConfigMap web/old, which 0000_10_web_old.yaml needs, is terminating since " +
		"2026-05-04T11:00:00Z", " | since 2026-05-04T11:00:00Z | ConfigMap web/old | 0000_10_web_old.yaml"
	for name, test := range map[string]struct {
		seen   tombstone.Observation
		wanted string
	}{
		"held": {tombstone.Observation{Finalizers: []string{"a/b"}},
			"Blocks " + what + ", held by finalizer a/b: it can be recreated only after its deletion; resolve by: " +
				"waiting for the " +
				"holder of finalizer a/b" + rest},
		"garbage collector": {tombstone.Observation{Finalizers: []string{"foregroundDeletion"}},
			"Warns " + what +
				", held by finalizer foregroundDeletion: an apply waits until it is deleted; resolve by: " +
				"waiting for the holder of finalizer foregroundDeletion" + rest},
		"nothing": {tombstone.Observation{},
			"Warns " + what + ": an apply waits until it is deleted; resolve by: waiting: nothing holds it" + rest},
		"not known": {tombstone.Observation{
			Contents: tombstone.Unclear,
			Remains:  []string{"not seen"},
		}, "Warns " + what +
			" (not seen): an apply waits until it is deleted; resolve by: waiting, unless something in it " +
			"is held, which is not known yet" + rest},
	} {
		t.Run(name, func(t *testing.T) {
			test.seen.State, test.seen.Since = tombstone.Terminating, since
			f := &precondition.Facts{
				Payload: release(t, "4.6.0", map[string]string{"0000_10_web_old.yaml": configMap("old", "")}),
				Record:  history("4.5.3"),
			}
			f.Terminating = []precondition.TerminatingNeed{{ID: old, Manifests: f.Payload.Manifests, Seen: test.seen}}
			f.Deletes = []precondition.Delete{asked(test.seen)} // a tombstone has begun it, which is reported once
			expect(t, f, test.wanted)
		})
	}
	t.Run("of the record, and more", func(t *testing.T) {
		namespace := precondition.TerminatingNeed{ID: kinds.ID{Kind: "Namespace", Name: "runlevel-system"}}
		namespace.Seen = tombstone.Observation{State: tombstone.Terminating, Since: since, Finalizers: []string{"a/b"}}
		f := &precondition.Facts{
			Payload:     release(t, "4.6.0", nil),
			Record:      history("4.5.3"),
			Terminating: []precondition.TerminatingNeed{namespace, {ID: old}},
		}
		expect(t, f,
			`Blocks TerminatingObject: Namespace runlevel-system, which the record of release web needs, is terminating since 2026-05-04T11:00:00Z, held by finalizer a/b: no object can be created in it before it is deleted; resolve by: waiting for the holder of finalizer a/b | since 2026-05-04T11:00:00Z | Namespace runlevel-system
Warns TerminatingObject: 1 more object that the update needs: being deleted, ConfigMap web/old first; resolve by: waiting for the holders of their finalizers | ConfigMap web/old`)
	})
}

func TestReappearedObjectMayBeWanted(t *testing.T) {
	back := []precondition.Delete{
		asked(tombstone.Observation{State: tombstone.Reappeared, Requested: "1", UID: "2", MadeBy: "kubectl at noon"}),
	}
	for name, test := range map[string]struct{ annotation, wanted string }{
		"the payload has it": {"", ""},
		"the payload deletes it": {tombstoneAnnotation,
			"Warns PendingDelete: ConfigMap web/old was deleted, and was created again by kubectl at noon: " +
				"this update deletes it again; resolve by: stopping the client that created it | since " +
				"2026-05-04T10:00:00Z | " +
				"ConfigMap web/old"},
	} {
		t.Run(name, func(t *testing.T) {
			rel := release(t, "4.6.0", map[string]string{"0000_10_web_old.yaml": configMap("old", test.annotation)})
			expect(t, &precondition.Facts{Payload: rel, Record: history("4.5.3"), Deletes: back}, test.wanted)
		})
	}
}

func TestReleasesDoNotGoBack(t *testing.T) {
	const begun, done = "begun at 2026-05-03T11:00:00Z", "applied at 2026-05-03T12:00:00Z"
	because := func(rule, resolution, text, newest, verb string) string {
		_, since, _ := strings.Cut(verb, " at ")
		return fmt.Sprintf("Blocks OlderVersion: %s is older than %s, which was %s: %s; resolve by: updating to %s or "+
			"newer%s | since %s", text, newest, verb, rule, newest, resolution, since)
	}
	older := func(text, newest, verb string) string {
		return because("releases don't go back", "", text, newest, verb)
	}
	for name, test := range map[string]struct {
		before []string
		to     string
		wanted string
	}{
		"patch before":                {[]string{"4.6.2", "4.6.1"}, "4.6.1", ""},
		"patch before, as seen twice": {[]string{"4.6.2", "4.6.2", "4.6.1"}, "4.6.1", ""},
		"two patches before": {[]string{"4.6.2", "4.6.1", "4.6.0"}, "4.6.0",
			because("a release only goes back to the version before it, 4.6.1", ", or to 4.6.1", "4.6.0", "4.6.2",
				done)},
		"minor before": {[]string{"4.6.0", "4.5.3"}, "4.5.3",
			because("a release does not go back from one minor version to another, as to 4.5.3 before it", "", "4.5.3",
				"4.6.0", done)},
		"minor before, only begun": {[]string{"4.6.0...", "4.5.3"}, "4.5.3",
			because("a release does not go back from one minor version to another, as to 4.5.3 before it", "", "4.5.3",
				"4.6.0", begun)},
		"far back":  {[]string{"4.6.2"}, "3.1.0", older("3.1.0", "4.6.2", done)},
		"candidate": {[]string{"4.6.0"}, "4.6.0-rc.1", older("4.6.0-rc.1", "4.6.0", done)},
		"candidate of ten": {[]string{"4.6.0-rc.10"}, "4.6.0-rc.9",
			older("4.6.0-rc.9", "4.6.0-rc.10", done)},
		"only begun":                  {[]string{"4.6.1...", "4.6.0"}, "4.6.0", ""},
		"the same":                    {[]string{"4.6.2"}, "4.6.2", ""},
		"the same, built again":       {[]string{"4.6.2+b"}, "4.6.2+a", ""},
		"newer":                       {[]string{"4.6.2"}, "4.6.3", ""},
		"newer than what failed once": {[]string{"4.6.2...", "4.6.9"}, "4.6.3", ""},
		"an install":                  {nil, "1.0.0", ""},
		"no version":                  {[]string{"4.6.2"}, "", ""},
		"no version before":           {[]string{""}, "4.6.2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{Payload: release(t, test.to, nil), Record: history(test.before...)},
				test.wanted)
		})
	}
}

func TestAVersionHasTheSameFiles(t *testing.T) {
	same := release(t, "4.6.0", nil).Content
	entry := func(state record.UpdateState, version, content string) record.HistoryEntry {
		done := ago(time.Hour)
		return record.HistoryEntry{
			State:     state,
			Version:   version,
			Content:   content,
			Source:    "./web\n",
			Started:   ago(2 * time.Hour),
			Completed: &done,
		}
	}
	withFiles := func(e record.HistoryEntry) record.HistoryEntry {
		e.Files = &record.KeptFiles{Digest: "sha256:c0ffee"}
		return e
	}
	const blocked = `Blocks ChangedContent: the files of 4.6.0 are not those that were applied as 4.6.0 at 2026-05-04T11:00:00Z from ./web\n` +
		"; resolve by: publishing the new files as a new version, or applying the files of that version | since " +
		"2026-05-04T11:00:00Z"
	for name, test := range map[string]struct {
		history []record.HistoryEntry
		wanted  string
	}{
		"others":             {record.History{entry(record.Completed, "4.6.0", "other")}, blocked},
		"the same":           {record.History{entry(record.Completed, "4.6.0", same)}, ""},
		"not known":          {record.History{entry(record.Completed, "4.6.0", "")}, ""},
		"forged, with files": {record.History{withFiles(entry(record.Completed, "4.6.0", ""))}, blocked},
		"of the version before": {
			record.History{entry(record.Completed, "4.6.1", "new"), entry(record.Completed, "4.6.0", "other")}, blocked,
		},
		"the same of before": {record.History{entry(record.Completed, "4.6.1", "new"),
			entry(record.Completed, "4.6.0", same)}, ""},
		"of another version": {record.History{entry(record.Completed, "4.5.9", "other")}, ""},
		"only begun":         {record.History{entry(record.Partial, "4.6.0", "other")}, ""},
		"begun after another version": {
			record.History{entry(record.Partial, "4.6.0", "other"), entry(record.Completed, "4.5.9", "old")}, "",
		},
		"forced, and not completed": {
			record.History{entry(record.Partial, "4.6.0", same), entry(record.Completed, "4.6.0", "other")}, "",
		},
		"others forced, not completed": {
			record.History{entry(record.Partial, "4.6.0", "third"), entry(record.Completed, "4.6.0", "other")}, blocked,
		},
		"forced, and completed": {
			record.History{entry(record.Completed, "4.6.0", same), entry(record.Completed, "4.6.0", "other")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{
				Payload: release(t, "4.6.0", nil),
				Record:  &record.Record{Release: "web", History: test.history},
			}, test.wanted)
		})
	}
	for name, content := range map[string]string{"a rollback to other files": "other",
		"a rollback to files without a hash": ""} {
		t.Run(name, func(t *testing.T) {
			historyEntry := entry(record.Completed, "", content)
			historyEntry.Revision = 1
			expect(t, &precondition.Facts{
				Payload:  release(t, "4.6.0", nil),
				Record:   &record.Record{Release: "web", History: record.History{historyEntry}},
				Rollback: &record.Rollback{To: 1},
			},
				"Blocks ChangedContent: the kept files of revision 1 are not those that were applied; resolve by: "+
					"rolling back to a version whose files are unchanged")
		})
	}
	t.Run("without a version", func(t *testing.T) {
		expect(t, &precondition.Facts{
			Payload: release(t, "", nil),
			Record:  &record.Record{Release: "web", History: record.History{entry(record.Completed, "", "other")}},
		}, "")
	})
}

func TestUpdatesSkipNothing(t *testing.T) {
	for name, test := range map[string]struct {
		before []string
		to     string
		wanted string
	}{
		"next minor": {[]string{"4.5.3"}, "4.6.7", ""},
		"two minors": {[]string{"4.5.3"}, "4.7.0",
			"Blocks GiantHop: the minor update from 4.5.3 to 4.7.0 skips 4.6; resolve by: updating to 4.6 first"},
		"many minors": {[]string{"4.5.3"}, "4.15.0",
			"Blocks GiantHop: the minor update from 4.5.3 to 4.15.0 skips 4.6; resolve by: updating to 4.6 first"},
		"next major": {[]string{"4.22.3"}, "5.0.1", ""},
		"next major, not at .0": {[]string{"4.22.3"}, "5.1.0",
			"Blocks GiantHop: the major update from 4.22.3 to 5.1.0 skips 5.0; resolve by: updating to 5.0 first"},
		"two majors": {[]string{"4.22.3"}, "6.0.0",
			"Blocks GiantHop: the major update from 4.22.3 to 6.0.0 skips 5.0; resolve by: updating to 5.0 first"},
		"a started update does not count": {[]string{"4.6.0...", "4.5.3"}, "4.7.0",
			"Blocks GiantHop: the minor update from 4.5.3 to 4.7.0 skips 4.6; resolve by: updating to 4.6 first"},
		"nothing was completed": {[]string{"4.6.0..."}, "4.7.0", ""},
		"an install":            {nil, "7.7.7", ""},
		"no version":            {[]string{"4.5.3"}, "", ""},
		"no version before":     {[]string{""}, "4.6.2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{Payload: release(t, test.to, nil), Record: history(test.before...)},
				test.wanted)
		})
	}
}

func TestCompletedTombstones(t *testing.T) {
	const stale = "Warns StaleTombstone: 0000_10_web_old.yaml: the tombstone of ConfigMap web/old was in 4.5.3 " +
		"already, and does nothing any more; resolve by: dropping it from the release | ConfigMap web/old | " +
		"0000_10_web_old.yaml"
	for name, test := range map[string]struct {
		from, to string
		deletes  []precondition.Delete
		wanted   string
	}{
		"next minor": {"4.5.3", "4.6.0", nil, stale},
		"deleted just now": {"4.5.3", "4.6.0",
			[]precondition.Delete{asked(tombstone.Observation{State: tombstone.Absent})}, stale},
		"patch":      {"4.5.3", "4.5.4", nil, ""},
		"no version": {"", "4.6.0", nil, ""},
		"came back": {"4.5.3", "4.6.0",
			[]precondition.Delete{asked(tombstone.Observation{State: tombstone.Reappeared, MadeBy: "kubectl at noon"})},
			"Warns PendingDelete: ConfigMap web/old was deleted, and was created again by kubectl at noon: this " +
				"update deletes it again; resolve by: stopping the client that created it | since " +
				"2026-05-04T10:00:00Z | ConfigMap web/old"},
	} {
		t.Run(name, func(t *testing.T) {
			rel := release(t, test.to, map[string]string{
				"0000_10_web_old.yaml":   configMap("old", tombstoneAnnotation),
				"0000_10_web_new.yaml":   configMap("new", tombstoneAnnotation),
				"0000_10_web_there.yaml": configMap("there", ""),
			})
			f := &precondition.Facts{Payload: rel, Record: history(test.from), Deletes: test.deletes}
			there := old
			there.Name = "there"
			f.Record.History[0].Tombstones = []kinds.ID{old, there}
			expect(t, f, test.wanted)
		})
	}
	t.Run("install", func(t *testing.T) {
		expect(t, &precondition.Facts{
			Payload: release(t, "4.6.0",
				map[string]string{"0000_10_web_old.yaml": configMap("old", tombstoneAnnotation)}),
		}, "")
	})
}

func TestTombstonesOfUsedObjects(t *testing.T) {
	const finding = "Blocks DeletedInUse: 0000_10_web_old.yaml: the release deletes Secret web/old, and Deployment " +
		"web/web (0000_10_web_web.yaml) refers to it in " +
		"spec.template.spec.imagePullSecrets[0].name; resolve by: dropping the tombstone, or the reference | Secret " +
		"web/old | 0000_10_web_old.yaml"
	const made = `{apiVersion: v1, kind: Secret, metadata: {name: old, namespace: web}}`
	for name, test := range map[string]struct{ old, web, wanted string }{
		"used":              {deletedSecret, usesSecret, finding},
		"another is used":   {deletedSecret, strings.ReplaceAll(usesSecret, "old", "new"), ""},
		"of another place":  {deletedSecret, strings.ReplaceAll(usesSecret, "namespace: web", "namespace: shop"), ""},
		"it is not deleted": {made, usesSecret, ""},
		"both go": {deletedSecret,
			strings.Replace(usesSecret, "namespace: web",
				`namespace: web, annotations: {release.openshift.io/delete: "true"}`, 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t,
				&precondition.Facts{Payload: release(t, "4.6.0", map[string]string{
					"0000_10_web_old.yaml": test.old,
					"0000_10_web_web.yaml": test.web,
				})}, test.wanted)
		})
	}
}

func TestAnotherProcessApplies(t *testing.T) {
	for name, test := range map[string]struct {
		silent time.Duration
		wanted string
	}{
		"watching": {3 * time.Second,
			`Blocks ApplyRunning: ana@host:7 (watching) has been keeping the release in place since 2026-05-04T11:50:00Z; resolve by: ` + lock.KeeperEnd + " | since 2026-05-04T11:50:00Z"},
		"alive": {3 * time.Second,
			"Blocks ApplyRunning: ana@host:7 has been applying the release since 2026-05-04T11:50:00Z; resolve by: " +
				"waiting " +
				"for its end | since 2026-05-04T11:50:00Z"},
		"dead": {40 * time.Second,
			"Warns ApplyRunning: ana@host:7 began to apply the release at 2026-05-04T11:50:00Z, and has not renewed " +
				"its lock since 2026-05-04T11:59:20Z: the lock has expired; resolve by: applying again, which takes " +
				"over the lock | since 2026-05-04T11:50:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			holder := "ana@host:7"
			if name == "watching" {
				holder += " (watching)"
			}
			expect(t, &precondition.Facts{Held: &lock.Holder{
				Name:     holder,
				Since:    now.Add(-10 * time.Minute),
				Renewed:  now.Add(-test.silent),
				Duration: 30 * time.Second,
			}}, test.wanted)
		})
	}
}

// TestFindingsHaveNoAges: conditions and events have their texts, and would change all the time.
func TestFindingsHaveNoAges(t *testing.T) {
	build := func(now time.Time) (texts []string) {
		f := &precondition.Facts{
			Now: now, Payload: release(t, "4.6.0", nil), Record: history("4.5.3"),
			Held: &lock.Holder{
				Name:     "ana@host:7",
				Since:    ago(time.Hour).Time,
				Renewed:  ago(time.Second).Time,
				Duration: time.Hour,
			},
			Deletes: []precondition.Delete{asked(tombstone.Observation{
				State:      tombstone.Terminating,
				Since:      ago(time.Hour).Time,
				Finalizers: []string{"a/b"},
			})},
			Terminating: []precondition.TerminatingNeed{{
				ID:   old,
				Seen: tombstone.Observation{State: tombstone.Terminating, Since: ago(time.Hour).Time},
			}},
		}
		for _, finding := range precondition.Evaluate(f) {
			texts = append(texts, finding.String())
		}
		return texts
	}
	soon, late := build(now), build(now.Add(17*time.Minute))
	if diff := cmp.Diff(soon, late); diff != "" || len(soon) < 3 {
		t.Errorf("of %d findings, some change with time: %s", len(soon), diff)
	}
}

func TestRefusalNamesItsChecks(t *testing.T) {
	f := &precondition.Facts{Now: now, Payload: release(t, "4.8.0", nil), Record: history("4.5.3"),
		Deletes: []precondition.Delete{
			asked(tombstone.Observation{State: tombstone.Terminating, Since: now}),
			asked(tombstone.Observation{State: tombstone.Reappeared, MadeBy: "x"}),
			asked(tombstone.Observation{State: tombstone.Terminating, Since: now, Finalizers: []string{"a/b"}}),
		}}
	findings := precondition.Evaluate(f)
	err := precondition.Refuse(findings)
	if reason.Of(err) != "UpgradePreconditionCheckFailed" {
		t.Errorf("reason %q", reason.Of(err))
	}
	const wanted = `GiantHop: the minor update from 4.5.3 to 4.8.0 skips 4.6; resolve by: updating to 4.6 first
PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-04T12:00:00Z: the minor update from 4.5.3 to 4.8.0 does not begin before it is deleted; resolve by: waiting: nothing holds it
PendingDelete: ConfigMap web/old, which 4.5.0 deletes, is terminating since 2026-05-04T12:00:00Z, held by finalizer a/b: the minor update from 4.5.3 to 4.8.0 does not begin before it is deleted; resolve by: waiting for the holder of finalizer a/b`
	if diff := cmp.Diff(wanted, err.Error()); diff != "" {
		t.Error(diff)
	}
	if names := precondition.CheckNames(precondition.Blocking(findings)); !slices.Equal(names,
		[]string{"GiantHop", "PendingDelete"}) {
		t.Errorf("overridden: %v", names)
	}
	if err := precondition.Refuse(
		slices.DeleteFunc(findings, func(f precondition.Finding) bool {
			return f.Severity == precondition.Blocks
		}),
	); err != nil {
		t.Errorf("what only warns refuses: %v", err)
	}
}
