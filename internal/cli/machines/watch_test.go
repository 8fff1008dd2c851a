package machines

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// newWatch returns a watch of machines, as text, without a terminal.
func newWatch(t *testing.T, out *bytes.Buffer) *machinesWatch {
	c, err := cluster.Connect(&rest.Config{Host: "https://example.com"}) // which is not asked
	if err != nil {
		t.Fatal(err)
	}
	return &machinesWatch{
		flags: &machinesFlags{}, cluster: c, streams: core.Streams{Out: out},
		shown:     map[kinds.ID]overview.MachineOverview{},
		shownSets: map[kinds.ID]string{},
	}
}

// While the machines of one API can't be listed, none of them is reported as gone.
func TestAMachineThatCannotBeListedIsNotGone(t *testing.T) {
	var out bytes.Buffer
	w := newWatch(t, &out)
	first := overview.MachineOverview{APIGroup: overview.Kind.Group, Namespace: "shop", Name: "a", Phase: "Running"}
	second := overview.MachineOverview{
		APIGroup:  overview.ClusterAPIKind.Group,
		Namespace: "shop",
		Name:      "b",
		Phase:     "Running",
	}
	show := func(list ...overview.MachineOverview) {
		t.Helper()
		if err := w.append(&overview.MachineList{Machines: list}); err != nil {
			t.Fatal(err)
		}
	}
	show(first, second)
	alone := first
	alone.Unlisted = []string{overview.ClusterAPIKind.Group}
	show(alone)
	if strings.Contains(out.String(), phaseGone) {
		t.Errorf("a machine is reported as gone:\n%s", &out)
	}
	show(first)
	if count := strings.Count(out.String(), phaseGone); count != 1 {
		t.Errorf("%d machines are reported as gone, want 1:\n%s", count, &out)
	}
}

// A control plane that is deleted and created again has a line for each, and nothing else is printed; while control
// planes can't be listed, none is reported as gone.
func TestAControlPlaneThatIsGone(t *testing.T) {
	var out bytes.Buffer
	w := newWatch(t, &out)
	set := &overview.ControlPlaneOverview{Kind: "RunlevelControlPlane", Namespace: "shop", Name: "plane"}
	there := &overview.MachineList{ControlPlanes: []*overview.ControlPlaneOverview{set}}
	for _, list := range []*overview.MachineList{there, there, {Unknown: []string{"this user may not list them"}},
		there, {}, {}, there} {
		if err := w.append(list); err != nil {
			t.Fatal(err)
		}
	}
	const line, gone = "RunlevelControlPlane shop/plane: Active, ; 0 desired, 0 updated, 0 ready\n",
		"RunlevelControlPlane shop/plane: Gone\n"
	if got := out.String(); got != line+gone+line {
		t.Errorf("printed:\n%s", got)
	}
	w.flags.query.OnlyDeleting = true
	if out.Reset(); w.append(&overview.MachineList{}) != nil || out.Len() > 0 {
		t.Errorf("without a machine that is being deleted, its control plane is reported as gone:\n%s", &out)
	}
}

// A machine is printed again only if what is printed differs: a line does not have whether the machine is up to date,
// and JSON has.
func TestAMachineThatLooksTheSame(t *testing.T) {
	for format, want := range map[core.Output]int{core.Text: 1, core.JSON: 2} {
		var out bytes.Buffer
		w := newWatch(t, &out)
		w.flags.format = format
		for _, isUpToDate := range []bool{true, false} {
			m := overview.MachineOverview{Namespace: "shop", Name: "a", Phase: "Running"}
			m.ControlPlane = &overview.MachineMembership{Set: &overview.ControlPlaneOverview{}, IsUpToDate: &isUpToDate}
			if err := w.append(&overview.MachineList{Machines: []overview.MachineOverview{m}}); err != nil {
				t.Fatal(err)
			}
		}
		if count := strings.Count(out.String(), "Running"); count != want {
			t.Errorf("%s: printed %d times, want %d:\n%s", format, count, want, &out)
		}
	}
}
