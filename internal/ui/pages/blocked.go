package pages

import (
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/why"
)

// A releasePart is an unfinished part of the release, such as "level 20, web".
type releasePart struct {
	after   []string      // the parts right before it
	holders []*why.Answer // its objects that wait, or have failed
}

// releaseParts are the unfinished parts of a release, and the objects that the apply has not reached.
type releaseParts struct {
	parts   map[string]*releasePart
	blocked map[kinds.ID]string // the names of their parts
}

func partsOf(objects []*why.Answer) releaseParts {
	p := releaseParts{map[string]*releasePart{}, map[kinds.ID]string{}}
	for _, a := range objects {
		part := p.parts[a.Node]
		if part == nil {
			part = &releasePart{}
			p.parts[a.Node] = part
		}
		if a.State != why.Blocked {
			part.holders = append(part.holders, a)
			continue
		}
		p.blocked[a.Object] = a.Node
		for _, earlier := range a.After {
			if !slices.Contains(part.after, earlier) {
				part.after = append(part.after, earlier)
			}
		}
	}
	return p
}

// holders returns the objects that parts wait for in the end.
func (p releaseParts) holders(names ...string) []*why.Answer {
	var found []*why.Answer
	seen := map[string]bool{}
	for ; len(names) > 0; names = names[1:] {
		part := p.parts[names[0]]
		if part == nil || seen[names[0]] {
			continue
		}
		seen[names[0]] = true
		found = append(found, part.holders...)
		names = append(names, part.after...)
	}
	return found
}
