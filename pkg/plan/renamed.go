package plan

import "path"

// A renameKey is where an object of a kind would be looked for: the kind, and a file name.
type renameKey struct{ group, kind, file string }

func (e ObjectPlan) renameKey() renameKey {
	return renameKey{e.Group, e.Kind, path.Base(e.Place().File)}
}

// findRenamed finds objects that seem to have followed dropped ones: in a file of the
// same name, the only new one of the same kind where one was dropped.
func (p *Plan) findRenamed() {
	dropped, created := map[renameKey][]int{}, map[renameKey][]int{}
	for i, e := range p.Absent {
		if e.Action == Dropped {
			dropped[e.renameKey()] = append(dropped[e.renameKey()], i)
		}
	}
	for i, e := range p.Steps {
		if e.Action == Created {
			created[e.renameKey()] = append(created[e.renameKey()], i)
		}
	}
	for slot, old := range dropped {
		if next := created[slot]; len(old) == 1 && len(next) == 1 {
			p.Absent[old[0]].RenamedTo = &p.Steps[next[0]].ObjectID
		}
	}
}
