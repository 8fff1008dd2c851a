package lint

import (
	"context"
	"regexp"
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// A ComponentChange is a change of one component's files in a payload. Findings in other components' files are
// left out, unless the change causes them.
type ComponentChange struct {
	Before   *payload.Payload  // the payload without the change
	Problems []payload.Problem // found while reading Before
	// Own returns the name that a file of the payload, or of the previous one, has in the component's folder, and
	// whether the file belongs to the component.
	Own func(file string, origin Origin) (name string, isOwn bool)
}

// concerns reports whether a manifest is validated against schemas, which is slow: every manifest is if c is
// nil. In the payload before the change, its file may have had another name.
func (c *ComponentChange) concerns(m *manifest) bool {
	return c == nil || c.isOwn(m.Path, InPayload) || c.isOwn(m.Path, InPrevious)
}

func (c *ComponentChange) isOwn(file string, origin Origin) bool {
	_, isOwn := c.Own(file, origin)
	return isOwn
}

// nameOf returns the name of a file in the component's folder, or its name in the payload if it is another
// component's.
func (c *ComponentChange) nameOf(file string, origin Origin) string {
	if c == nil || origin == InConfig {
		return file
	}
	if name, isOwn := c.Own(file, origin); isOwn {
		return name
	}
	return file
}

// filter removes the findings from a result that the change has not caused.
func (c *ComponentChange) filter(ctx context.Context, input Input, after *Result) error {
	input.Payload, input.Problems = c.Before, c.Problems
	before, err := run(ctx, input)
	if err != nil {
		return err
	}
	known := map[FindingKey]int{}
	for _, findings := range [][]Finding{before.Findings, before.Suppressed} {
		for _, f := range findings {
			known[f.Key()]++
		}
	}
	isUnrelated := func(f Finding) bool {
		if f.In == InConfig || c.isOwn(f.File, f.In) {
			return false
		}
		key := f.Key()
		known[key]--
		return known[key] >= 0
	}
	for _, findings := range []*[]Finding{&after.Findings, &after.Suppressed} {
		*findings = slices.DeleteFunc(*findings, isUnrelated)
		for i := range *findings {
			c.place(&(*findings)[i])
		}
		slices.SortStableFunc(*findings, byPlace)
	}
	return nil
}

// place marks a finding in a file of another component, and names a file of the component as in its own folder.
func (c *ComponentChange) place(f *Finding) {
	set := func(file *string, origin *Origin) {
		if *origin == InPayload && !c.isOwn(*file, InPayload) {
			*origin = InRelease
		} else if *origin == InPayload {
			*file = c.nameOf(*file, InPayload)
		}
	}
	set(&f.File, &f.In)
	if f.Near != nil {
		set(&f.Near.File, &f.Near.In)
	}
	if f.Suppressed != nil {
		set(&f.Suppressed.File, &f.Suppressed.In)
	}
}

// A FindingKey is equal for findings that differ in their lines and severities only.
type FindingKey struct {
	rule, file, object, message string
	in                          Origin
}

// objectCount matches the number of objects with the same fault in a message. A change of any manifest may change
// it.
var objectCount = regexp.MustCompile(`\b\d+ objects?\b`)

// Key returns the key of a finding, without lines and object counts.
func (f Finding) Key() FindingKey {
	message := objectCount.ReplaceAllString(payload.WithoutLines(f.Message), "")
	return FindingKey{f.Rule, f.File, f.Object, message, f.In}
}
