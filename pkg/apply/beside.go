package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/graph"
)

// In an install, neighbours in a node are applied side by side where none of them can need
// another one: a component of a hundred objects would else take as long as a hundred answers.

// dataKinds are those whose objects only hold data: an API server takes them whatever of the
// others is there, and nothing begins because of them. Bindings are not among them, as they
// are refused without their roles, and neither are ServiceAccounts, without which some Secrets
// are deleted again.
var dataKinds = map[schema.GroupKind]bool{
	{Kind: "ConfigMap"}: true,
	{Kind: "Secret"}:    true,
	{Kind: "Service"}:   true,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:       true,
	{Group: "policy", Kind: "PodDisruptionBudget"}:            true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: true,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        true,
}

// areBeside says whether two neighbours may be applied side by side: those of one kind, and
// those that only hold data.
func areBeside(a, b step) bool {
	if a.IsTombstone() || b.IsTombstone() {
		return false
	}
	one, other := a.ID().GroupKind(), b.ID().GroupKind()
	return one == other || dataKinds[one] && dataKinds[other]
}

// rowStarts are, by step, the first of those that it is done side by side with.
func rowStarts(g *graph.Graph, steps []step, mode graph.Mode) []int {
	starts := make([]int, len(steps))
	for _, node := range g.Nodes {
		for at, i := range node.Tasks {
			starts[i] = i
			if mode == graph.Install && at > 0 && areBeside(steps[i-1], steps[i]) {
				starts[i] = starts[i-1]
			}
		}
	}
	return starts
}

// rows are some steps of a node, in rows that come one after the other.
func (o *order) rows(steps []int) [][]int {
	var rows [][]int
	for at, i := range steps {
		if at == 0 || o.starts[i] == i {
			rows = append(rows, nil)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], i)
	}
	return rows
}

// isAhead says whether a step is done before it is its turn by the order of the files. What
// is refused then, may not be when it is: a webhook may know more by then.
func (r *run) isAhead(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.areOver[r.order.starts[i]:i], false)
}

// over notes that nothing is done about a step any more.
func (r *run) over(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.areOver[i] = true
}
