package session_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// TestARepairAfterAKillIsCounted changes an object while the process that kept it in place is dead. The apply of the
// next process repairs the object, and counts that. Its other objects were not repaired.
func TestARepairAfterAKillIsCounted(t *testing.T) {
	const release, files = "killed-keeper", `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_shop_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red}}
`
	s := sleepIn(t, mortal{Release: release, Text: files, Keeps: true}, 0)
	if err := s.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	breakLock(t, release)
	if _, err := test.Client(t).CoreV1().ConfigMaps(release).Patch(t.Context(), "settings", types.MergePatchType,
		[]byte(`{"data":{"colour":"blue"}}`), metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c, o := connectAs(t, release), options()
	var events []string
	o.Keep = &keep.Options{OnEvent: func(event keep.Event) {
		if event.Type == keep.Repaired {
			events = append(events, event.Object.String()+": "+string(event.Action)+" of "+event.File)
		}
	}}
	o.Observer = observer{onOutcome: func(*session.Outcome) { stop() }}
	session.Run(ctx, c, load(t, release, "1.1.0", files), o)
	if diff := cmp.Diff([]string{"ConfigMap killed-keeper/settings: configured of 0000_20_shop_10_settings.yaml"},
		events); diff != "" {
		t.Errorf("the repairs that it reports (-want +got):\n%s", diff)
	}
	known, _, err := record.NewStore(c.Client, records, release).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if known.Repairs == nil || known.Repairs.Count != 1 ||
		known.Repairs.Latest[0].Message != "configured; data.colour (kubectl)" {
		t.Errorf("the repairs of the record: %+v", known.Repairs)
	}
}
