package why_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/apply"
)

// TestRemedy: another apply fails alike where an object or hook has failed for good, or an image is missing.
func TestRemedy(t *testing.T) {
	noImage := map[kinds.ID][]string{db: {"Pod shop/db-0: container db can't pull image registry/db: not found"}}
	slow := map[kinds.ID][]string{db: {"Pod shop/db-0: it has no node"}}
	waits, refused := step(db, apply.InWait, "0 of 1"), step(web, apply.HasFailed, "spec.selector: field is immutable")
	for name, c := range map[string]struct {
		steps   []record.RunStep
		details map[kinds.ID][]string
		want    string
	}{
		"nothing has failed": {[]record.RunStep{waits}, slow, "apply it again"},
		"tried again when it ended": {[]record.RunStep{step(web, apply.InRetry, "exceeded quota")}, nil,
			"apply it again"},
		"refused for good": {[]record.RunStep{waits, refused}, slow, "fix Deployment shop/web, then apply it again"},
		"an image that can't be pulled": {[]record.RunStep{waits}, noImage,
			"fix StatefulSet shop/db, then apply it again"},
		"both, and a hook": {[]record.RunStep{waits, refused, hookOf("pre", apply.HasFailed, "exit code 1")}, noImage,
			"fix StatefulSet shop/db and 2 others, then apply it again"},
		"the image of an object not here": {[]record.RunStep{step(web, apply.InWait, "0 of 1")}, noImage,
			"apply it again"},
	} {
		t.Run(name, func(t *testing.T) {
			run := &record.Run{Nodes: []record.RunNode{node("level 10, db", "running", nil, c.steps...)}}
			if got := why.Remedy(&record.Record{}, apply.StateOf(run), c.details); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := why.Remedy(&record.Record{}, nil, nil); got != "apply it again" {
		t.Errorf("without a run: %q", got)
	}
	kept := &record.KeptFiles{Digest: "sha256:1"}
	updated := &record.Record{Release: "shop", History: record.History{
		{Revision: 2, State: record.Partial, Version: "1.1.0", Hash: "b", Files: kept},
		{Revision: 1, State: record.Completed, Version: "1.0.0", Hash: "a", Files: kept},
	}}
	run := apply.StateOf(&record.Run{Nodes: []record.RunNode{node("level 10, db", "running", nil, refused)}})
	if got, want := why.Remedy(updated, run, nil), "fix Deployment shop/web, then apply it again, or go back to "+
		"1.0.0 (runlevel rollback shop)"; got != want {
		t.Errorf("of an update with files: %q, want %q", got, want)
	}
	if got, want := why.Remedy(updated, nil, nil), "apply it again (runlevel apply shop@)"; got != want {
		t.Errorf("with files: %q, want %q", got, want)
	}
}
