package apply_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// If a user makes the record unreadable while a run writes it, each write fails until the record is repaired.
func TestNoteInARecordThatWasBroken(t *testing.T) {
	namespace := test.Namespace(t)
	store := record.NewStore(connect(t).Client, namespace, "shop")
	journal := object.NewJournal(store, &record.Record{Release: "shop"})
	note := func() error {
		return journal.Note(t.Context(), func(known *record.Record) {
			known.ForgetJob(kinds.ID{Kind: "Job", Name: "import"})
		})
	}
	if err := note(); err != nil {
		t.Fatal(err)
	}
	edit := func(text string) {
		t.Helper()
		patch := `{"data": {"record.json": ` + text + `}}`
		if _, err := test.Client(t).CoreV1().ConfigMaps(namespace).Patch(t.Context(), "runlevel-release-shop",
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	edit(`"{"`)
	change := func() error {
		return journal.Note(t.Context(), func(known *record.Record) {
			known.Begin(record.HistoryEntry{Version: "1.0.0"})
		})
	}
	for range 2 {
		if err := change(); err == nil || !strings.Contains(err.Error(), "runlevel-release-shop") {
			t.Fatalf("got %v", err)
		}
	}
	edit(`"{\"format\": 1, \"release\": \"shop\"}"`)
	if err := change(); err != nil {
		t.Fatal(err)
	}
}
