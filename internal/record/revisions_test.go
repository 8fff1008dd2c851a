package record_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/record"
)

// revisions returns the revisions and versions of a history, the newest first.
func revisions(r *record.Record) string {
	var all []string
	for _, entry := range r.History {
		all = append(all, fmt.Sprintf("%d %s", entry.Revision, entry.Version))
	}
	return strings.Join(all, ", ")
}

func begin(r *record.Record, version string) {
	r.Begin(record.HistoryEntry{Version: version, Hash: version, Mode: "update", Started: at(1)})
	r.Complete(at(2))
}

func TestRevisionsAreNeverUsedAgain(t *testing.T) {
	r := &record.Record{Release: "web"}
	for i := range 150 {
		begin(r, fmt.Sprint("1.0.", i+1))
	}
	if newest, oldest := r.History[0].Revision, r.History[len(r.History)-1].Revision; newest != 150 || oldest != 1 {
		t.Errorf("the revisions are %d to %d", oldest, newest)
	}
	r.History = nil // a copy may have no room for it
	begin(r, "2.0.0")
	if got := revisions(r); got != "151 2.0.0" {
		t.Errorf("the history is %s", got)
	}
	r.Begin(record.HistoryEntry{Version: "2.1.0", Hash: "b", Revision: 160}) // the revision of a copy of its files
	r.Begin(record.HistoryEntry{Version: "2.1.0", Hash: "b"})                // continues
	begin(r, "2.2.0")
	if got := revisions(r); got != "161 2.2.0, 160 2.1.0, 151 2.0.0" {
		t.Errorf("the history is %s", got)
	}
}

// TestARecordOfAnOlderProgram has no revisions, and drops those that it finds.
func TestARecordOfAnOlderProgram(t *testing.T) {
	namespace := cluster.Namespace(t)
	s, r := record.NewStore(cluster.Client(t), namespace, "web"), full()
	for _, version := range []string{"1.3.0", "1.4.0"} {
		begin(r, version)
	}
	save(t, s, r)
	edit(t, namespace, func(config *corev1.ConfigMap) {
		var all map[string]any
		if err := json.Unmarshal([]byte(config.Data["record.json"]), &all); err != nil {
			t.Fatal(err)
		}
		history := all["history"].([]any)
		for _, entry := range history {
			delete(entry.(map[string]any), "revision")
			delete(entry.(map[string]any), "files")
		}
		all["history"] = append([]any{map[string]any{
			"version": "1.5.0",
			"hash":    "e",
			"state":   "Completed",
			"started": at(5),
		}}, history...)
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		config.Data["record.json"] = string(text)
	})
	r = load(t, s)
	if got := revisions(r); got != "4 1.5.0, 3 1.4.0, 2 1.3.0, 1 1.2.3" {
		t.Errorf("the history is %s", got)
	}
	begin(r, "1.6.0")
	if got := r.History[0].Revision; got != 5 {
		t.Errorf("the next revision is %d", got)
	}
}

func TestFindRevision(t *testing.T) {
	r := &record.Record{Release: "web"}
	for _, version := range []string{"1.0.0", "1.1.0", "1.0.0", ""} {
		r.Begin(record.HistoryEntry{Version: version, Hash: version + fmt.Sprint(len(r.History)), Mode: "update"})
		r.Complete(at(2))
	}
	for text, want := range map[string]int{"": 4, "1": 1, "4": 4, "1.0.0": 3, "1.1.0": 2} {
		if found, err := r.FindRevision(text); err != nil || found.Revision != want {
			t.Errorf("%q is %+v (%v), want %d", text, found, err, want)
		}
	}
	const has = ": it has 4 (without a version), 3 (1.0.0), 2 (1.1.0), 1 (1.0.0)"
	for text, want := range map[string]string{"9": "release web has no revision 9" + has,
		"1.2.0": "release web has no version 1.2.0" + has} {
		if _, err := r.FindRevision(text); err == nil || err.Error() != want {
			t.Errorf("the error is\n%v, want\n%s", err, want)
		}
	}
}

// TestWhichFilesAreKept expects the newest files, those of the applied version, and those of the version before.
func TestWhichFilesAreKept(t *testing.T) {
	r := &record.Record{Release: "web"}
	next := func(version string, isDone bool) {
		r.Begin(record.HistoryEntry{
			Version: version,
			Hash:    version,
			Mode:    "update",
			Files:   &record.KeptFiles{Digest: "of " + version},
		})
		if isDone {
			r.Complete(at(2))
		}
	}
	for _, version := range []string{"1", "2", "3"} {
		next(version, true)
	}
	for _, version := range []string{"4", "5", "6"} {
		next(version, false)
	}
	if diff := cmp.Diff([]string{"of 2", "of 3", "of 5", "of 6"},
		slices.Sorted(maps.Keys(r.History.KeepFiles(2)))); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if files := r.History[5].Files; files.Digest != "" ||
		files.NotKept != "it is not among the last 2 versions, whose files are kept" {
		t.Errorf("got files %+v of the oldest revision", files)
	}
	r.Begin(record.HistoryEntry{Version: "6", Hash: "6", Mode: "update", Files: &record.KeptFiles{NotKept: "no right"}})
	if files := r.Newest().Files; files.Digest != "of 6" {
		t.Errorf("after an apply without the right to write the copy, it is %+v", files)
	}
}
