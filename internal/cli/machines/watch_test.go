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

// While the machines of one API can't be listed, none of them is told as gone.
func TestAMachineThatCannotBeListedIsNotGone(t *testing.T) {
	var out bytes.Buffer
	c, err := cluster.Connect(&rest.Config{Host: "https://example.com"}) // which is not asked
	if err != nil {
		t.Fatal(err)
	}
	w := &machinesWatch{
		flags: &machinesFlags{}, cluster: c, streams: core.Streams{Out: &out}, shown: map[kinds.ID]overview.MachineOverview{},
		shownSets: map[kinds.ID]string{},
	}
	first := overview.MachineOverview{APIGroup: overview.Kind.Group, Namespace: "shop", Name: "a", Phase: "Running"}
	second := overview.MachineOverview{APIGroup: overview.ClusterAPIKind.Group, Namespace: "shop", Name: "b", Phase: "Running"}
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
		t.Errorf("a machine is told as gone:\n%s", &out)
	}
	show(first)
	if count := strings.Count(out.String(), phaseGone); count != 1 {
		t.Errorf("%d machines are told as gone, want 1:\n%s", count, &out)
	}
}
