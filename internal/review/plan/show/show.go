// Package show prints a plan: as text for a terminal, as Markdown for a pull
// request, and the plan of a cluster as a diff.
//
// It leaves out repetitions, and prints their number. Package plan decides the
// actions. No text of a manifest can become markup or an escape sequence.
//
// Start with Printer; Text, Markdown and Diff are its methods.
package show

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Printer prints a plan.
type Printer struct {
	Plan *plan.Plan
	// From and To are the names of releases that have no version.
	From, To string
	// All shows unchanged objects, too, and cuts nothing (in text).
	All bool
	// Command is the command that prints the whole plan, for the note on what Markdown has cut.
	Command string
	// MaxValue is how many characters of a value are shown; 0 has as many as fit a terminal.
	MaxValue int
	// PathOf returns the source of a file of the release, for hints at what to edit. Nil returns the
	// file itself.
	PathOf func(file string) string
}

// Title returns the title of a plan.
func (pr Printer) Title() string {
	p := pr.Plan
	if p.Cluster != nil {
		return pr.clusterTitle()
	}
	oldName, newName := cmp.Or(p.From.Version, pr.From, "?"), cmp.Or(p.To.Version, pr.To, "?")
	if p.Update == plan.Unknown {
		return fmt.Sprintf("update from %s to %s", oldName, newName)
	}
	return fmt.Sprintf("update from %s to %s (%s)", oldName, newName, updates()[p.Update])
}

// updates are the kinds of updates in words.
func updates() map[plan.UpdateKind]string {
	return map[plan.UpdateKind]string{
		plan.Patch: "patch", plan.Minor: "minor", plan.Major: "major", plan.Same: "the same version",
		plan.Downgrade: "a downgrade",
	}
}

// Impact returns a sentence on what restarts, what loses data, and what becomes unreachable. The plan of a cluster does
// not know the last.
func (pr Printer) Impact() string {
	impact := pr.Plan.Impact
	restarts, data, reach := "Restarts nothing", "loses no data", "everything that stays is still reachable"
	if ids := impact.Restarts; len(ids) > 0 {
		restarts = "Restarts " + countAndName(ids, "workload")
	}
	if ids := impact.LosesData; len(ids) > 0 {
		data = "loses the data of " + countAndName(ids, "object")
	}
	if ids := impact.Unreachable; len(ids) > 0 {
		reach = "makes " + countAndName(ids, "object") + " at least partly unreachable"
	}
	if pr.Plan.Cluster != nil {
		return restarts + ", and " + data + "."
	}
	return restarts + ", " + data + ", and " + reach + "."
}

// maxNames limits the objects that the sentence on the impact names.
const maxNames = 3

func countAndName(ids []kinds.ID, noun string) string {
	var names []string
	for _, id := range ids {
		names = append(names, id.String())
	}
	return fmt.Sprintf("%s (%s)", printable.Count(len(ids), noun), printable.Few(names, maxNames))
}

// ReasonOfNoChange returns why nothing changes; "" if something does.
func (pr Printer) ReasonOfNoChange() string {
	p := pr.Plan
	switch {
	case !p.IsEmpty():
		return ""
	case p.HasForeign():
		return "nothing would change: an apply keeps the fields that other managers have set and the release does " +
			"not have"
	case p.Cluster != nil:
		return "nothing would change: the cluster matches the release"
	case p.From.Hash == p.To.Hash && p.From.Version != p.To.Version:
		return "the two releases have the same manifests"
	case p.From.Hash == p.To.Hash:
		return "the two releases are the same"
	default:
		return "nothing changes: the manifests differ in how they are written only"
	}
}

// sign returns the sign of an action, with which its lines begin.
func sign(action plan.Action) string {
	switch action {
	case plan.Created, plan.Included, plan.Revived:
		return "+"
	case plan.Changed:
		return "~"
	case plan.Deleted, plan.DeletedWith, plan.Pending:
		return "-"
	case plan.Dropped, plan.LeftOut, plan.Left:
		return "!"
	case plan.NothingToDelete, plan.Unchecked:
		return "?"
	case plan.Unchanged, plan.Kept:
		return "="
	case plan.Rejected:
		return "x"
	default: // DeletedAgain, MadeTest, Retired, NotThere
		return "."
	}
}

// CountWords returns the words for an action, of one object or several.
func CountWords(action plan.Action, count int) string {
	words := countedWords[action]
	if count == 1 {
		return cmp.Or(words.one, words.several)
	}
	return words.several
}

// countedWords are the words for an action of several objects, and of one if they differ.
var countedWords = map[plan.Action]struct{ several, one string }{
	plan.Created:         {several: "created"},
	plan.Included:        {several: "created, now included by the filters"},
	plan.Revived:         {"created again, after they were deleted", "created again, after it was deleted"},
	plan.Changed:         {several: "changed"},
	plan.Unchanged:       {several: "unchanged"},
	plan.Deleted:         {several: "deleted"},
	plan.DeletedAgain:    {several: "deleted by the old release already"},
	plan.NothingToDelete: {several: "to be deleted, and never there"},
	plan.Dropped:         {"dropped: they stay in the cluster", "dropped: it stays in the cluster"},
	plan.LeftOut: {"left out by the filters: they stay in the cluster",
		"left out by the filters: it stays in the cluster"},
	plan.DeletedWith: {several: "deleted with something else"},
	plan.MadeTest:    {"now tests of the release", "now a test of the release"},
	plan.Retired: {"tombstones that are no longer in the release",
		"tombstone that is no longer in the release"},
	plan.Rejected:  {several: "refused by the cluster"},
	plan.Unchecked: {several: "that can't be checked"},
	plan.Pending:   {several: "being deleted already"},
	plan.Left: {"with tombstones, which this mode does not delete",
		"with a tombstone, which this mode does not delete"},
	plan.Kept:     {"kept as they are", "kept as it is"},
	plan.NotThere: {several: "to be deleted, but not found"},
}

// A Group is the objects of a component in a level.
type Group struct {
	Title   string
	From    string // the heading from which all entries were moved; "" if they were not
	IsGone  bool   // no manifest of the new release is in it
	Entries []plan.ObjectPlan
	Hidden  int // unchanged objects that are not among the entries
}

// Groups returns the groups in the order in which they begin in the update. Objects that the new release does not have
// follow the others of their component, or come last.
func (pr Printer) Groups() []*Group {
	var groups []*Group
	known := map[string]*Group{}
	add := func(e plan.ObjectPlan, isGone bool) {
		title := heading(e.Place())
		g := known[title]
		if g == nil {
			g = &Group{Title: title, IsGone: isGone && title != notInRelease}
			known[title] = g
			groups = append(groups, g)
		}
		if e.IsNoop() && !pr.All && len(e.Foreign) == 0 {
			g.Hidden++
			return
		}
		g.Entries = append(g.Entries, e)
	}
	for _, e := range pr.Plan.Steps {
		add(e, false)
	}
	for _, e := range pr.Plan.Absent {
		add(e, true)
	}
	for _, g := range groups {
		g.From = g.origin()
	}
	return groups
}

// origin returns the heading from which all objects of a group were moved, which is then printed once; "" if there is
// no such heading, or only one object.
func (g *Group) origin() string {
	from, count := "", 0
	for _, e := range g.Entries {
		switch {
		case e.Old == nil || e.New == nil:
			continue
		case !e.IsMoved() || from != "" && from != heading(*e.Old):
			return ""
		}
		from = heading(*e.Old)
		count++
	}
	if count < 2 || g.Hidden > 0 {
		return ""
	}
	return from
}

func heading(p plan.Position) string {
	if p.File == "" && p.Component == "" {
		return notInRelease
	}
	if p.Component == "" {
		return printable.Line(p.File)
	}
	return fmt.Sprintf("level %s · %s", p.Level, p.Component)
}

// notInRelease is the heading of objects that only the cluster has.
const notInRelease = "in the cluster, and not in the release"

// why returns the notes on an object of a group, in a sentence; "" if there are none.
func (g *Group) why(e plan.ObjectPlan) string {
	var parts []string
	if e.IsMoved() && g.From == "" {
		parts = append(parts, "it comes from "+heading(*e.Old))
	}
	switch {
	case e.With != nil && (e.With.Kind == "Namespace" || e.With.Kind == "CustomResourceDefinition"):
		parts = append(parts, "with its "+e.With.Kind) // its name is clear from the object's
	case e.Why != "":
		parts = append(parts, printable.Line(e.Why))
	}
	if e.RenamedTo != nil {
		parts = append(parts, e.RenamedTo.String()+" seems to follow it")
	}
	return strings.Join(append(parts, whyInCluster(e)...), "; ")
}

// Details describe an object of a plan, beside its action.
type Details struct {
	Why     string // the reason in a sentence; "" if there is nothing to say
	Hooks   []string
	Changes []Difference
	Rest    string   // counts of the changes that are left out; "" if there are none
	Foreign []string // fields of other managers
	// Tombstone is the manifest that would delete the object, and File the file to add it to.
	Tombstone, File, Language string
}

// Details returns the details of an object of a group. Descriptions in a CustomResourceDefinition are only counted, and
// so are changes beyond a limit. Without a limit, no change is left out.
func (pr Printer) Details(g *Group, e plan.ObjectPlan, limit int) Details {
	d := Details{Why: g.why(e), Hooks: pr.hooks(e)}
	descriptions, more := 0, 0
	for _, change := range e.Changes {
		switch {
		case e.Kind == definition && isDescription(change) && limit > 0:
			descriptions++
		case limit > 0 && len(d.Changes) == limit:
			more++
		default:
			d.Changes = append(d.Changes, differenceOf(e.Kind, change, pr.maxValue(limit)))
		}
	}
	d.Rest = unlistedCounts(descriptions, more)
	for _, foreign := range e.Foreign {
		d.Foreign = append(d.Foreign, foreign.String())
	}
	d.Tombstone, d.File, d.Language = pr.tombstone(e)
	return d
}

// maxValue returns how many characters of a value are shown, beside a limit of fields.
func (pr Printer) maxValue(limit int) int {
	switch {
	case pr.MaxValue > 0:
		return pr.MaxValue
	case pr.All && limit == 0:
		return math.MaxInt
	default:
		return maxValueLength
	}
}

// isDescription reports whether a change is one of a schema's description, and not of the schema of a
// field with that name.
func isDescription(change plan.FieldChange) bool {
	_, wasSchema := change.Old.(map[string]any)
	_, isSchema := change.New.(map[string]any)
	return change.Path[len(change.Path)-1].Key == "description" && !wasSchema && !isSchema
}

// tombstone returns the tombstone of an object and the file to add it to; "" if it needs
// none of its own.
func (pr Printer) tombstone(e plan.ObjectPlan) (text, file, language string) {
	if e.CoveredBy != nil || e.Tombstone == "" {
		return "", "", ""
	}
	language = "yaml"
	if e.Old == nil {
		return e.Tombstone, "the release", language
	}
	if path.Ext(e.Old.File) == ".json" {
		language = "json"
	}
	if file = e.Old.File; pr.PathOf != nil {
		file = pr.PathOf(file)
	}
	return e.Tombstone, file, language
}

// unlistedCounts returns the number of changes that are not listed, in words; "" if all are.
func unlistedCounts(descriptions, more int) string {
	var left []string
	if descriptions > 0 {
		left = append(left, printable.Count(descriptions, "description"))
	}
	if more > 0 {
		left = append(left, printable.Count(more, "more field"))
	}
	if len(left) == 0 {
		return ""
	}
	return "and " + strings.Join(left, ", ")
}
