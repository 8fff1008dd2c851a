package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/fix"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A missing tombstone is one that a finding asks for.
type missingTombstone struct {
	object string // as the finding prints it
	id     kinds.ID
	file   string // of the folder, where it belongs
	text   string // to paste

	// Of an annotation that is misspelt:
	key            string
	document, line int
}

// missingTombstones are those that findings ask for, in their order.
func (m *fixRun) missingTombstones() []missingTombstone {
	var found []missingTombstone
	for _, f := range m.now.result.Findings {
		switch f.Rule {
		case "dropped", "renamed":
			found = append(found, m.missingTombstonesOf(f)...)
		case fix.Misspelt:
			if tombstone, ok := m.misspelt(f); ok {
				found = append(found, tombstone)
			}
		}
	}
	return found
}

// missingTombstonesOf returns the tombstones of an object that the release dropped. An object for which the plan
// prints none would take others along.
func (m *fixRun) missingTombstonesOf(f lint.Finding) []missingTombstone {
	if m.absent == nil {
		m.absent = plan.Compare(m.now.input.Previous, m.now.input.Payload).Absent
	}
	var found []missingTombstone
	for _, entry := range m.absent {
		if entry.Tombstone != "" && entry.String() == f.Object {
			found = append(found, missingTombstone{object: f.Object, id: entry.ID, file: m.fileFor(entry.Old.File), text: entry.Tombstone})
		}
	}
	return found
}

// fileFor is where a manifest would stand that was in a file of the release before: in the
// one of the same name, if there is one.
func (m *fixRun) fileFor(old string) string {
	if placed := m.now.paths.placed; placed != nil {
		return placed.Home(old)
	}
	name := path.Base(old)
	folder := "."
	for _, file := range m.now.input.Payload.Files {
		if file.Path == old {
			return old
		}
		if path.Dir(file.Path) != "." {
			folder = "release-manifests"
		}
	}
	for _, file := range m.now.input.Payload.Files {
		if path.Base(file.Path) == name {
			return file.Path
		}
	}
	return path.Join(folder, name)
}

// misspelt is the tombstone that an annotation was to make, if it says that it was.
func (m *fixRun) misspelt(f lint.Finding) (missingTombstone, bool) {
	field := f.Field()
	manifests := m.now.input.Payload.Manifests
	at := slices.IndexFunc(manifests, func(other *payload.Manifest) bool {
		return m.nameOf(other.Path) == f.File && other.Document == f.Document
	})
	if f.In != lint.InPayload || at < 0 || len(field) == 0 || manifests[at].IsTombstone() {
		return missingTombstone{}, false
	}
	key := field[len(field)-1]
	value := manifests[at].Object().GetAnnotations()[key]
	return missingTombstone{
		object: f.Object, id: manifests[at].ID(), file: f.File, text: payload.DeleteAnnotation + ": \"true\"\n",
		key: key, document: f.Document, line: f.Line,
	}, strings.EqualFold(strings.TrimSpace(value), "true")
}

// pasteable is what a person may paste into files, each with where to.
func (m *fixRun) pasteable() string {
	var text strings.Builder
	for _, tombstone := range m.missingTombstones() {
		text.WriteString("\n" + m.paste(tombstone))
	}
	return text.String()
}

// paste is one of them. The first line is a comment, as it may be pasted, too.
func (m *fixRun) paste(tombstone missingTombstone) string {
	where, what := m.where(tombstone.file, tombstone.line), "add this as a document of its own"
	if tombstone.key != "" {
		what = fmt.Sprintf("write this instead of %s", tombstone.key)
	}
	how := fmt.Sprintf("or use --fix=%s --object %q", fixTombstones, tombstone.object)
	if why := fix.Guarded(tombstone.id); why != "" {
		how = "but mind: " + why
	}
	return printable.Line(fmt.Sprintf("# %s: %s to delete %s, %s", where, what, tombstone.object, how)) + "\n" + tombstone.text
}

// addTombstones adds those that were asked for to a patch.
func (m *fixRun) addTombstones(patch *fix.Patch) error {
	all := m.missingTombstones()
	flags := choices(all)
	if len(m.flags.fix.objects) == 0 && flags != "" {
		return misuse{fmt.Errorf("--fix=%s needs to know what to delete: name it with %s", fixTombstones, flags)}
	}
	for _, object := range m.flags.fix.objects {
		var asked []missingTombstone
		for _, tombstone := range all {
			if tombstone.object == object {
				asked = append(asked, tombstone)
			}
		}
		if len(asked) == 0 && flags == "" {
			return misuse{fmt.Errorf("--object %q: there is no finding that wants a tombstone for it, or for any other object", object)}
		}
		if len(asked) == 0 {
			return misuse{fmt.Errorf("--object %q: there is no finding that wants a tombstone for it: there is %s", object, flags)}
		}
		if err := m.add(patch, asked); err != nil {
			return err
		}
	}
	return nil
}

// choices are the flags to choose from; "" if there are none.
func choices(all []missingTombstone) string {
	var flags []string
	for _, tombstone := range all {
		flag := fmt.Sprintf("--object %q", tombstone.object)
		if fix.Guarded(tombstone.id) == "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return printable.Line(strings.Join(flags, " or "))
}

// add adds the tombstones of one object.
func (m *fixRun) add(patch *fix.Patch, asked []missingTombstone) error {
	for _, tombstone := range asked {
		if tombstone.id != asked[0].id {
			return misuse{fmt.Errorf("--object %q is several objects, of the groups %q and %q: add their tombstones by hand, as --fix prints them", tombstone.object, asked[0].id.Group, tombstone.id.Group)}
		}
		if why := fix.Guarded(tombstone.id); why != "" {
			fmt.Fprint(m.streams.Out, m.paste(tombstone))
			return misuse{fmt.Errorf("--object %q: %s", tombstone.object, why)}
		}
		var err error
		if tombstone.key != "" {
			err = patch.Correct(tombstone.file, tombstone.document, tombstone.key)
		} else {
			err = patch.Append(tombstone.file, []byte(tombstone.text))
		}
		if err != nil {
			fmt.Fprint(m.streams.Out, m.paste(tombstone))
			return fmt.Errorf("--object %q: %w", tombstone.object, err)
		}
	}
	return nil
}
