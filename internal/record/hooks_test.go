package record_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// The history has the users who have skipped a hook or run it again, also of an update that was begun again; the last
// ones of many.
func TestUsersWhoSkippedHooks(t *testing.T) {
	web := kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	r := &record.Record{Release: "shop"}
	begin := func(hooks ...record.HookOverride) {
		r.Begin(record.HistoryEntry{Version: "2", Hash: "b", Mode: "update", Started: at(4)})
		r.AddOverrides(hooks...)
	}
	begin(record.HookOverride{ID: web, Hook: deploymenthook.Pre, By: "ana", Time: at(4)})
	begin(record.HookOverride{ID: web, Hook: deploymenthook.Post, IsRerun: true, By: "bob\n", Time: at(5)})
	if diff := cmp.Diff("[pre hook of Deployment shop/web skipped by ana post hook of Deployment shop/web run again "+
		"by bob\\n]", fmt.Sprint(r.Newest().Hooks)); diff != "" {
		t.Error(diff)
	}
	for range 30 {
		begin(record.HookOverride{ID: web, Hook: deploymenthook.Mid, By: "ana", Time: at(6)})
	}
	if kept := r.Newest().Hooks; len(kept) != 20 || kept[0].Hook != deploymenthook.Mid {
		t.Errorf("%d are kept, from %v on", len(kept), kept[0])
	}
	(&record.Record{}).AddOverrides(record.HookOverride{ID: web}) // no update has begun
}
