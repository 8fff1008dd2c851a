package record_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// TestRepairs checks that the repairs of the last repaired objects stay, the newest first, until another update begins.
func TestRepairs(t *testing.T) {
	r := &record.Record{}
	r.Begin(record.HistoryEntry{Version: "1", Hash: "a"})
	for i := range 12 {
		r.AddRepair(record.Repair{ID: kinds.ID{Kind: "ConfigMap", Name: strconv.Itoa(i)}, Message: "created"})
	}
	r.AddRepair(record.Repair{ID: kinds.ID{Kind: "ConfigMap", Name: "5"}, Message: "configured"})
	r.Begin(record.HistoryEntry{Version: "1", Hash: "a"}) // the same update continues
	var latest []string
	for _, repair := range r.Repairs.Latest {
		latest = append(latest, repair.Name+" "+strconv.Itoa(repair.Count)+" "+repair.Message)
	}
	want := []string{"5 2 configured"}
	for _, name := range []string{"11", "10", "9", "8", "7", "6", "4", "3", "2"} {
		want = append(want, name+" 1 created")
	}
	if diff := cmp.Diff(want, latest); diff != "" || r.Repairs.Count != 13 {
		t.Errorf("%d repairs (-want +got):\n%s", r.Repairs.Count, diff)
	}
	if r.Begin(record.HistoryEntry{Version: "2", Hash: "b"}); r.Repairs != nil {
		t.Errorf("of version 1: %+v", r.Repairs)
	}
}
