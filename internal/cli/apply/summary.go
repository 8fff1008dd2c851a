package apply

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// summarize returns the summary of an outcome.
func summarize(o *session.Outcome, now time.Time) Summary {
	s := Summary{
		Time: now.UTC(), Type: "summary", Release: o.Release, Version: o.Version, Previous: o.Previous,
		Mode: string(o.Mode),
		Done: o.Err == nil, Deletes: state.PendingDeletes(o.Deletes, now), Gate: o.Findings, Notes: o.Notes,
		FileWarnings: o.FileWarnings, Seconds: o.Took.Seconds(),
	}
	if o.Err != nil {
		s.Error, s.Reason = core.ErrorText(o.Err), reason.Of(o.Err)
	}
	for _, item := range o.Orphans {
		s.Orphans = append(s.Orphans, orphan{item.ID, item.Tombstone()})
	}
	if o.Report == nil {
		return s
	}
	s.Waits, s.Warnings, s.Counts = o.Report.Waits, o.Report.Warnings, map[object.Action]int{}
	for _, change := range o.Report.Changes {
		s.count(change)
		s.addLosses(change)
		switch change.Action {
		case object.Failed:
			s.Failures = append(s.Failures, failure{
				change.Err.ID, change.Err.Hook, change.Err.Path, change.Err.Line, change.Err.Node, change.Err.Reason,
				printable.Line(change.Err.Err.Error()),
			})
		case object.NotDone:
			s.NotDone = append(s.NotDone, undoneStep{change.ID, change.Hook, change.Path, change.Message})
		}
	}
	return s
}

// count counts an object, or a hook of an object.
func (s *Summary) count(change object.Change) {
	if change.Hook == "" {
		s.Counts[change.Action]++
		return
	}
	if s.Hooks == nil {
		s.Hooks = map[object.Action]int{}
	}
	s.Hooks[change.Action]++
}

// addLosses adds the managers that have lost fields of an object to the release.
func (s *Summary) addLosses(change object.Change) {
	id, file := change.ID, change.Path
	if len(change.Adopted) > 0 {
		s.Adopted = append(s.Adopted, adoption{id, file, change.Adopted})
	}
	if len(change.Lost) > 0 {
		s.Overruled = append(s.Overruled, overwrite{id, file, change.Lost})
	}
}

// countedActions are the actions in the order in which they are summed up.
var countedActions = []object.Action{
	object.Created, object.Configured, object.Recreated, object.Unchanged, object.Kept,
	object.Deleted, object.Pending, object.Absent, object.Reappeared, object.Left, object.NotChecked, object.Failed,
	object.NotDone,
}

// countedHooks are the actions of hooks in the order in which they are summed up. Hooks that were not needed are not
// counted.
var countedHooks = []struct {
	action object.Action
	words  string
}{{object.Ran, "ran"}, {object.Ignored, "failed, which was ignored"}, {object.Failed, "failed"},
	{object.NotDone, "not done"}}

// maxListed limits the lines of a section.
const maxListed = 20

// print prints the summary as text.
func (s Summary) print(out io.Writer, now time.Time) {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(10 * time.Millisecond)
	fmt.Fprintf(out, "%s %s: %s\n", s.title(), s.verdict(took), s.counts())
	section(out, "not ready", s.Waits, func(wait apply.Wait) sectionLine {
		text := ": " + printable.Line(fmt.Sprintf("%s, for %s", wait.For, printable.Age(now, wait.Since)))
		for _, reason := range wait.Why {
			text += "\n      " + printable.Line(reason)
		}
		cause := wait.ID.Without(strings.Join(append([]string{wait.For}, wait.Why...), "\n"))
		return sectionLine{wait.Name(), wait.Hook + cause, text}
	})
	section(out, "not done", s.NotDone, func(done undoneStep) sectionLine {
		line := lineOf(done.Object, "")
		if done.Why != "" {
			line = lineOf(done.Object, ": "+printable.Line(done.Why))
		}
		line.name, line.cause = done.Object.OrHook(done.Hook), done.Hook+line.cause
		return line
	})
	s.printStoppedHooks(out)
	isBack := func(item state.PendingDelete) bool { return item.State == tombstone.Reappeared }
	isPending := func(item state.PendingDelete) bool { return !isBack(item) }
	stateOf := func(item state.PendingDelete) sectionLine {
		return lineOf(item.Object, ": "+printable.Line(item.Message))
	}
	section(out, "pending deletes, which block the next minor update",
		slices.DeleteFunc(slices.Clone(s.Deletes), isBack), stateOf)
	section(out, "deleted, and recreated by another manager, which blocks nothing",
		slices.DeleteFunc(slices.Clone(s.Deletes), isPending), stateOf)
	section(out, "orphans, which this release neither has nor deletes; these tombstones would delete them", s.Orphans,
		func(item orphan) sectionLine {
			return lineOf(item.Object,
				"\n      "+strings.ReplaceAll(strings.TrimRight(item.Tombstone, "\n"), "\n", "\n      "))
		})
	section(out, s.tense("adopted: fields of these managers that the release does not have were removed",
		"to be adopted: fields of these managers that the release does not have would be removed"), s.Adopted,
		func(item adoption) sectionLine {
			return lineOf(item.Object, ": from "+printable.Line(strings.Join(item.From, ", ")))
		})
	section(out, s.tense("fields of other managers that were set back to the values of the release",
		"fields of other managers that would be set back to the values of the release"), s.Overruled,
		func(item overwrite) sectionLine {
			return lineOf(item.Object, ": "+printable.Line(object.LossesInWords(item.Lost)))
		})
	section(out, "not known", s.Notes, func(note string) sectionLine {
		return sectionLine{printable.Line(note), note, ""}
	})
	section(out, "release files could not be stored or removed", s.FileWarnings,
		func(warning string) sectionLine {
			return sectionLine{printable.Line(warning), warning, ""}
		})
	section(out, "warnings of the cluster", s.Warnings, func(warning apply.Warning) sectionLine {
		return sectionLine{printable.Line(warning.Text), warning.Text,
			fmt.Sprintf(" (%s)", printable.Line(printable.Few(warning.Files, core.MostFiles)))}
	})
}

// counts returns the number of objects and of hooks for each action.
func (s Summary) counts() string {
	var counts []string
	for _, action := range countedActions {
		if n := s.Counts[action]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, action))
		}
	}
	for _, hooks := range countedHooks {
		if n := s.Hooks[hooks.action]; n > 0 {
			counts = append(counts, printable.Count(n, "hook")+" "+hooks.words)
		}
	}
	return strings.Join(counts, ", ")
}

// printStoppedHooks prints the lifecycle hooks that have stopped a rollout, and the flags that skip them.
func (s Summary) printStoppedHooks(out io.Writer) {
	stopped := slices.DeleteFunc(slices.Clone(s.Failures), func(item failure) bool {
		return item.Hook == "" || s.DryRun
	})
	section(out, "lifecycle hooks that failed and blocked their rollout; run apply again to retry", stopped,
		func(item failure) sectionLine {
			name := item.Object.OrHook(item.Hook)
			return sectionLine{name, name,
				": " + printable.Line(fmt.Sprintf("--%s %s/%s:%s continues without it", skipHook, item.Object.Namespace,
					item.Object.Name, item.Hook))}
		})
}

// verdict returns the result as text.
func (s Summary) verdict(took time.Duration) string {
	switch {
	case s.DryRun && s.Done:
		return "would be applied"
	case s.DryRun:
		return "would not be applied as it is"
	case s.Done:
		return fmt.Sprintf("applied in %s", took)
	default:
		return fmt.Sprintf("not applied in %s", took)
	}
}

// tense returns the first text for an apply, and the second for a dry run.
func (s Summary) tense(done, dry string) string {
	if s.DryRun {
		return dry
	}
	return done
}

func (s Summary) title() string {
	if s.Version == "" {
		return "release " + s.Release
	}
	return printable.Line("release " + s.Release + " " + s.Version)
}

// A sectionLine is a line of a section: a name and a text. Lines with the same cause are printed once.
type sectionLine struct{ name, cause, text string }

func lineOf(id kinds.ID, text string) sectionLine {
	return sectionLine{id.String(), id.Without(text), text}
}

// section prints a list under a title, unless it is empty.
func section[T any](out io.Writer, title string, items []T, line func(T) sectionLine) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(out, "  %s:\n", title)
	remaining := len(items)
	for i, item := range core.Fold(items, func(item T) string { return line(item).cause }) {
		if i == maxListed {
			fmt.Fprintf(out, "    and %d more: -o json lists all\n", remaining)
			return
		}
		more := ""
		if len(item.Others) > 0 {
			more = fmt.Sprintf(" and %d more", len(item.Others))
		}
		fmt.Fprintf(out, "    %s%s%s\n", line(item.First).name, more, line(item.First).text)
		remaining -= 1 + len(item.Others)
	}
}
