package lint

import (
	"context"
	"regexp"
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// A Change is what somebody is about to change in a payload: files of their own among
// those of others. What is wrong with others' files is not their concern, unless their
// change is the cause.
type Change struct {
	Before   *payload.Payload  // the payload without the change
	Problems []payload.Problem // of reading it
	// Own is what those who make the change call a file, of the payload or of the one
	// before it, if it is theirs.
	Own func(file string, in Origin) (name string, isOwn bool)
}

// isAskedFor says whether a manifest is to be held against schemas, which is slow. In the
// payload before the change, its file may have had another name.
func (s *subject) isAskedFor(m *manifest) bool {
	return s.change == nil || s.change.isOwn(m.Path, InPayload) || s.change.isOwn(m.Path, InPrevious)
}

func (c *Change) isOwn(file string, in Origin) bool {
	_, isOwn := c.Own(file, in)
	return isOwn
}

// nameOf is what a file is called by those who change the payload.
func (c *Change) nameOf(file string, in Origin) string {
	if c == nil || in == InConfig {
		return file
	}
	if name, isOwn := c.Own(file, in); isOwn {
		return name
	}
	return file
}

// only leaves out of a result what others have done.
func (c *Change) only(ctx context.Context, input Input, after *Result) error {
	input.Payload, input.Problems = c.Before, c.Problems
	before, err := run(ctx, input)
	if err != nil {
		return err
	}
	known := map[Fault]int{}
	for _, findings := range [][]Finding{before.Findings, before.Suppressed} {
		for _, f := range findings {
			known[f.Fault()]++
		}
	}
	isOthers := func(f Finding) bool {
		if f.In == InConfig || c.isOwn(f.File, f.In) {
			return false
		}
		what := f.Fault()
		known[what]--
		return known[what] >= 0
	}
	for _, findings := range []*[]Finding{&after.Findings, &after.Suppressed} {
		*findings = slices.DeleteFunc(*findings, isOthers)
		for i := range *findings {
			c.place(&(*findings)[i])
		}
		slices.SortStableFunc(*findings, byPlace)
	}
	return nil
}

// place says of a finding whether it is in a file of others, and calls the file by the
// name that its owners know.
func (c *Change) place(f *Finding) {
	set := func(file *string, in *Origin) {
		if *in == InPayload && !c.isOwn(*file, InPayload) {
			*in = InRelease
		} else if *in == InPayload {
			*file = c.nameOf(*file, InPayload)
		}
	}
	set(&f.File, &f.In)
	if f.Suppressed != nil {
		set(&f.Suppressed.File, &f.Suppressed.In)
	}
}

// A Fault is a finding, wherever in its file it stands, and however bad it is.
type Fault struct {
	rule, file, object, message string
	in                          Origin
}

// howMany is what a message says and a change of anything may make another: how many
// objects have the same fault.
var howMany = regexp.MustCompile(`\b\d+ objects?\b`)

// Fault is what is found.
func (f Finding) Fault() Fault {
	message := howMany.ReplaceAllString(payload.WithoutLines(f.Message), "")
	return Fault{f.Rule, f.File, f.Object, message, f.In}
}
