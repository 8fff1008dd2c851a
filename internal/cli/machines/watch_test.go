package machines

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
)

// newWatch returns a watch of machines that prints text to a buffer, and sends no request to its cluster.
func newWatch(t *testing.T, out *bytes.Buffer) *machineWatch {
	c, err := cluster.Connect(&rest.Config{Host: "https://example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return newMachineWatch(&listFlags{}, c, core.Streams{Out: out})
}

// TestWatchKeepsUnlistedMachines checks that the machines of an API are not reported as deleted while they can't be
// listed.
func TestWatchKeepsUnlistedMachines(t *testing.T) {
	var out bytes.Buffer
	w := newWatch(t, &out)
	first := overview.Machine{APIGroup: overview.Kind.Group, Namespace: "shop", Name: "a", Phase: "Running"}
	second := overview.Machine{
		APIGroup:  overview.ClusterAPIKind.Group,
		Namespace: "shop",
		Name:      "b",
		Phase:     "Running",
	}
	show := func(list ...overview.Machine) {
		t.Helper()
		if err := w.printChanges(&overview.Listing{Machines: list}); err != nil {
			t.Fatal(err)
		}
	}
	show(first, second)
	alone := first
	alone.Unlisted = []string{overview.ClusterAPIKind.Group}
	show(alone)
	if strings.Contains(out.String(), phaseDeleted) {
		t.Errorf("a machine is reported as deleted:\n%s", &out)
	}
	show(first)
	if count := strings.Count(out.String(), phaseDeleted); count != 1 {
		t.Errorf("%d machines are reported as deleted, want 1:\n%s", count, &out)
	}
}

// TestWatchReportsDeletedControlPlanes checks that the deletion and the creation of a control plane are printed once,
// and that a failed list is not a deletion.
func TestWatchReportsDeletedControlPlanes(t *testing.T) {
	var out bytes.Buffer
	w := newWatch(t, &out)
	set := &overview.ControlPlane{Kind: "RunlevelControlPlane", Namespace: "shop", Name: "plane"}
	listing := &overview.Listing{ControlPlanes: []*overview.ControlPlane{set}}
	for _, list := range []*overview.Listing{listing, listing, {Unknown: []string{"this user may not list them"}},
		listing, {}, {}, listing} {
		if err := w.printChanges(list); err != nil {
			t.Fatal(err)
		}
	}
	const line = "RunlevelControlPlane shop/plane: Active, ; 0 desired, 0 updated, 0 ready\n"
	const want = line + "RunlevelControlPlane shop/plane: " + phaseDeleted + "\n" + line
	if got := out.String(); got != want {
		t.Errorf("printed:\n%swant:\n%s", got, want)
	}
	w.flags.query.OnlyDeleting = true
	if out.Reset(); w.printChanges(&overview.Listing{}) != nil || out.Len() > 0 {
		t.Errorf("without a machine being deleted, its control plane is reported as deleted:\n%s", &out)
	}
}

// TestWatchSkipsUnchangedLines checks that a machine is printed again only if its line or value differs. A line does
// not show whether the machine is up to date, and JSON does.
func TestWatchSkipsUnchangedLines(t *testing.T) {
	for format, want := range map[core.Output]int{core.Text: 1, core.JSON: 2} {
		var out bytes.Buffer
		w := newWatch(t, &out)
		w.flags.format = format
		for _, isUpToDate := range []bool{true, false} {
			m := overview.Machine{Namespace: "shop", Name: "a", Phase: "Running"}
			m.ControlPlane = &overview.Membership{Set: &overview.ControlPlane{}, IsUpToDate: &isUpToDate}
			if err := w.printChanges(&overview.Listing{Machines: []overview.Machine{m}}); err != nil {
				t.Fatal(err)
			}
		}
		if count := strings.Count(out.String(), "Running"); count != want {
			t.Errorf("%s: printed %d times, want %d:\n%s", format, count, want, &out)
		}
	}
}
