package show_test

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
)

func text(t testing.TB, v show.Printer) string {
	t.Helper()
	var out strings.Builder
	if err := v.Text(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func markdown(t testing.TB, v show.Printer) string {
	t.Helper()
	var out strings.Builder
	if err := v.Markdown(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// planOf returns a plan of steps and absent objects, with their counts.
func planOf(steps, absent []plan.ObjectPlan) *plan.Plan {
	p := &plan.Plan{Update: plan.Unknown, Counts: map[plan.Action]int{}, Steps: steps, Absent: absent}
	for _, entries := range [][]plan.ObjectPlan{steps, absent} {
		for _, e := range entries {
			p.Counts[e.Action]++
		}
	}
	return p
}

// configMap is an entry of a component, with changes.
func configMap(action plan.Action, component, name string, changes ...plan.FieldChange) plan.ObjectPlan {
	position := &plan.Position{File: "0000_10_" + component + "_a.yaml", Level: "10", Component: component}
	e := plan.ObjectPlan{
		ID:      kinds.ID{Kind: "ConfigMap", Name: name},
		Action:  action,
		New:     position,
		Old:     position,
		Changes: changes,
	}
	switch action {
	case plan.Created:
		e.Old = nil
	case plan.Dropped:
		e.New = nil
	}
	return e
}

// change is one of a field, written with dots.
func change(path string, old, next any) plan.FieldChange {
	var steps fields.Path
	for _, key := range strings.Split(path, ".") {
		steps = append(steps, fields.PathStep{Key: key, Index: -1})
	}
	return plan.FieldChange{Difference: fields.Difference{Path: steps, Old: old, New: next}}
}

func TestShownValues(t *testing.T) {
	long := strings.Repeat("x", 60)
	for name, test := range map[string]struct {
		old, next any
		want      string
	}{
		"texts":                    {"a b", "c", "f: a b → c"},
		"blanks at an end":         {"a", " a", `f: a → " a"`},
		"a new secret":             {nil, "***", `f: (none) → ***`},
		"an empty text":            {"a", "", `f: a → ""`},
		"a text that was a number": {int64(1), "1", `f: 1 → "1"`},
		"a new text":               {nil, "null", `f: (none) → "null"`},
		"a removed value":          {true, nil, "f: true → (none)"},
		"mappings": {map[string]any{"b": "<x>", "a": []any{1.5}}, nil,
			`f: {"a":[1.5],"b":"<x>"} → (none)`},
		"what terminals do": {"a\x1b[31m", "b\u202e", `f: a\x1b[31m → b\u202e`},
		"long texts": {long + long + "1" + long, long + long + "2" + long,
			"f: …" + strings.Repeat("x", 20) + "1" + strings.Repeat("x", 51) + "… → …" + strings.Repeat("x", 20) + "2" +
				strings.Repeat("x", 51) + "…"},
		"a long text and a short one": {long + long, "y", "f: " + long + strings.Repeat("x", 12) + "… → y"},
		"lines": {"a\nb\nc\nd\n", "a\nB\nc\nd\ne\n", `f: 4 lines → 5 lines
- b
+ B
+ e`},
		"lines where there was one": {"a", "a\nb", "f: 1 line → 2 lines\n+ b"},
		"new lines":                 {nil, "a\nb\n", "f: (none) → 2 lines"},
		"many lines": {"a\n" + strings.Repeat("b\n", 20), "c\n",
			"f: 21 lines → 1 line\n- a" + strings.Repeat("\n- b", 11) + "\nand 10 more lines"},
	} {
		t.Run(name, func(t *testing.T) {
			out := text(t,
				show.Printer{Plan: planOf(
					[]plan.ObjectPlan{configMap(plan.Changed, "a", "c", change("f", test.old, test.next))}, nil,
				)})
			_, out, _ = strings.Cut(out, "ConfigMap c\n")
			var lines []string
			for line := range strings.Lines(out) {
				lines = append(lines, strings.TrimSpace(line))
			}
			if diff := cmp.Diff(test.want, strings.Join(lines, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestImpact(t *testing.T) {
	web, data := kinds.ID{Kind: "Service", Name: "web"}, kinds.ID{Kind: "PersistentVolumeClaim", Name: "data"}
	var four []kinds.ID
	for i := range 4 {
		four = append(four, kinds.ID{Kind: "Deployment", Name: fmt.Sprint(i)})
	}
	all := plan.Impact{Restarts: four, LosesData: []kinds.ID{data}, Unreachable: []kinds.ID{web}}
	const restarts = "Restarts 4 workloads (Deployment 0, Deployment 1, Deployment 2 and 1 more), "
	const loses = "loses the data of 1 object (PersistentVolumeClaim data)"
	for _, test := range []struct {
		found plan.Plan
		want  string
	}{
		{plan.Plan{}, "Restarts nothing, loses no data, and everything that stays is still reachable."},
		{plan.Plan{Impact: all}, restarts + loses + ", and makes 1 object (Service web) at least partly unreachable."},
		{plan.Plan{Impact: all, Cluster: &plan.ClusterInfo{}}, restarts + "and " + loses + "."},
	} {
		printer := show.Printer{Plan: &test.found}
		first, _, _ := strings.Cut(text(t, printer), "\n")
		if printer.Impact() != test.want || first != test.want {
			t.Errorf("the impact is %q, and the first line %q, want %q", printer.Impact(), first, test.want)
		}
		if !strings.Contains(markdown(t, printer), "**Restarts ") {
			t.Error("Markdown lacks it")
		}
	}
}

// With All, texts are complete, also new texts and long values.
func TestNoValueIsCutWithAll(t *testing.T) {
	long := strings.Repeat("b", 100)
	for name, test := range map[string]struct {
		old, next any
		want      string
	}{
		"many lines": {"a\n" + strings.Repeat("b\n", 20), "c\n",
			"21 lines → 1 line\n        - a" + strings.Repeat("\n        - b", 20) + "\n        + c\n"},
		"a long line":      {"a\nb", "a\n" + long, "2 lines → 2 lines\n        - b\n        + " + long + "\n"},
		"new lines":        {nil, "a\nb", "(none) → 2 lines\n        + a\n        + b\n"},
		"a long value":     {"a", long, "a → " + long + "\n"},
		"lines for a list": {[]any{"a"}, "a\nb", "[\"a\"] → 2 lines\n        + a\n        + b\n"},
	} {
		entry := configMap(plan.Changed, "a", "c", change("f", test.old, test.next))
		got := text(t, show.Printer{Plan: planOf([]plan.ObjectPlan{entry}, nil), All: true})
		if _, got, _ = strings.Cut(got, "f: "); got != test.want {
			t.Errorf("%s: (-want +got)\n%s", name, cmp.Diff(test.want, got))
		}
	}
}

func TestPathsOfASchema(t *testing.T) {
	build := func(more ...string) plan.FieldChange {
		path := fields.Path{{Key: "spec", Index: -1}, {Key: "versions", Index: -1}, {Key: "name", Value: "v1"},
			{Key: "schema", Index: -1}, {Key: "openAPIV3Schema", Index: -1}}
		for _, key := range more {
			path = append(path, fields.PathStep{Key: key, Index: -1})
		}
		return plan.FieldChange{Difference: fields.Difference{Path: path, Old: "a", New: "b"}}
	}
	for want, c := range map[string]plan.FieldChange{
		"version v1: spec.list[*].size: maximum": build("properties", "spec", "properties", "list", "items",
			"properties",
			"size", "maximum"),
		"version v1: spec.any.*.properties": build("properties", "spec", "properties", "any", "additionalProperties",
			"properties", "properties"),
		"version v1: required":   build("required"),
		"version v1: properties": build("properties"),
		"spec.group":             change("spec.group", "a", "b"),
		"and 1 description":      build("properties", "spec", "description"),
		`version v1: spec.description: (none)`: {Difference: fields.Difference{
			Path: build("properties", "spec", "properties", "description").Path,
			New:  map[string]any{"type": "string"},
		}},
	} {
		e := configMap(plan.Changed, "a", "c", c)
		e.Kind = "CustomResourceDefinition"
		if out := text(t, show.Printer{Plan: planOf([]plan.ObjectPlan{e}, nil)}); !strings.Contains(out,
			"      "+want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// TestMovesOfAComponent: if all objects of a component come from one place, it is shown once.
func TestMovesOfAComponent(t *testing.T) {
	moved := func(name, level string) plan.ObjectPlan {
		e := configMap(plan.Unchanged, "a", name)
		e.Old = &plan.Position{Level: level, Component: "a"}
		return e
	}
	all := show.Printer{Plan: planOf(
		[]plan.ObjectPlan{moved("a", "05"), moved("b", "05"), configMap(plan.Created, "a", "c")}, nil,
	)}
	if out := text(t, all); !strings.Contains(out, "level 10 · a  (from level 05 · a)\n  = ConfigMap a\n") {
		t.Error(out)
	}
	if out := markdown(t, all); !strings.Contains(out,
		"All of it comes from `level 05 · a`.\n\n- **unchanged** `ConfigMap a`\n") {
		t.Error(out)
	}
	for name, entries := range map[string][]plan.ObjectPlan{
		"from two places": {moved("a", "05"), moved("b", "06")},
		"one stays":       {moved("a", "05"), moved("b", "05"), configMap(plan.Unchanged, "a", "c")},
		"only one":        {moved("a", "05")},
	} {
		if out := text(t, show.Printer{Plan: planOf(entries, nil)}); !strings.Contains(out,
			"= ConfigMap a  (it comes from level 05 · a)") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestTombstones: in the language of their file, and none where another does.
func TestTombstones(t *testing.T) {
	inJSON, covered := configMap(plan.Dropped, "a", "a"), configMap(plan.Dropped, "a", "b")
	inJSON.Tombstone, inJSON.Old = "{}\n", &plan.Position{File: "a.json"}
	covered.Tombstone, covered.CoveredBy = "hidden\n", &kinds.ID{Kind: "Namespace", Name: "n"}
	v := show.Printer{Plan: planOf(nil, []plan.ObjectPlan{inJSON, covered})}
	out := markdown(t, v) + text(t, v)
	if !strings.Contains(out, "put this into `a.json`:\n    ```json\n") ||
		!strings.Contains(out, "put this into a.json:\n") || strings.Contains(out, "hidden") {
		t.Error(out)
	}
	if !strings.Contains(out, "2 dropped: they stay in the cluster") {
		t.Error(out)
	}
	if name := text(t, show.Printer{Plan: planOf(nil, []plan.ObjectPlan{covered})}); !strings.Contains(name,
		"1 dropped: it stays in the cluster") {
		t.Error(name)
	}
}

func TestMuchIsCutUnlessAllIsWanted(t *testing.T) {
	var changes []plan.FieldChange
	var absent []plan.ObjectPlan
	for i := range 50 {
		changes = append(changes, change(fmt.Sprintf("data.f%d", i), "a", "b"))
		absent = append(absent, configMap(plan.Dropped, "b", fmt.Sprint("c", i)))
	}
	p := planOf([]plan.ObjectPlan{configMap(plan.Changed, "a", "c", changes...),
		configMap(plan.Unchanged, "a", "same")}, absent)
	for _, e := range absent {
		p.Warnings = append(p.Warnings, plan.Warning{Reason: plan.Orphan, ID: e.ID, Message: "stays"})
	}
	short, all := text(t, show.Printer{Plan: p}), text(t, show.Printer{Plan: p, All: true})
	for _, want := range []string{"and 10 more fields\n", "and 30 more for the reason Orphan: --all lists them\n",
		"level 10 · a  (1 unchanged)\n", "level 10 · b  (no longer in the release)\n"} {
		if !strings.Contains(short, want) {
			t.Errorf("%q is not in\n%s", want, short)
		}
	}
	if strings.Contains(all, "more") || strings.Count(all, "data.f") != 50 || strings.Count(all, ": stays") != 50 ||
		!strings.Contains(all, "= ConfigMap same") {
		t.Errorf("all is not\n%s", all)
	}
}

// hostile is a plan in which all texts of manifests are the same text.
func hostile(s string) show.Printer {
	c := plan.FieldChange{Difference: fields.Difference{
		Path: fields.Path{{Key: s, Index: -1}, {Key: "name", Value: s}},
		Old:  s,
		New:  s + "x\n" + s,
	}}
	object := kinds.ID{Group: s, Kind: s, Namespace: s, Name: s}
	position := &plan.Position{File: s}
	p := planOf([]plan.ObjectPlan{{
		ID:      object,
		Action:  plan.Changed,
		Why:     s,
		Old:     position,
		New:     position,
		Changes: []plan.FieldChange{c, change("a", nil, s), change("a", map[string]any{s: s}, s)},
	}},
		[]plan.ObjectPlan{{
			ID:        object,
			Action:    plan.Dropped,
			Why:       s,
			Old:       position,
			RenamedTo: &object,
			Tombstone: s + "\n" + s,
		}})
	p.From.Version, p.To.Version = s, s
	p.Warnings = []plan.Warning{{Reason: plan.Orphan, ID: object, Message: s}}
	return show.Printer{Plan: p, From: s, To: s, Command: s}
}

var hostileTexts = []string{
	"000000&0",
	"a`b", "``", "`", "`````` x", "a|b", "<script>alert(1)</script>", "</details>", "</code></summary><img src=x>",
	"@everyone @a/b", "#1 a/b#2 GH-3", "a\n\n# b\n- c\n```\n",
	"[a](javascript:b)", "![a](b)", "**a** _b_ ~~c~~", "https://example.com www.example.com a@example.com",
	"&lt;script&gt;", "<!-- ", "-->", "\\`", "\\", ":tada: a:+1:b::smile:",
	"0123456 abcdef0 0123456789abcdef0123456789abcdef01234567 x", "a\x1b[31mb\u202ec\x00", "~~~", "~~~\n", "   ```",
	"\t```", "", " ",
}

func TestNothingBecomesMarkup(t *testing.T) {
	for _, s := range hostileTexts {
		checkMarkdown(t, s)
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkMarkdown(t, s) })
}

var (
	ourTags  = regexp.MustCompile(`(?m)^(<details><summary><code>[^<>]*</code>: [a-z0-9, -]*</summary>|</details>)$`)
	mentions = regexp.MustCompile(`[@#][^\x{200b}]|GH-|www\.|://|:[a-z0-9_+-]+:|\b[0-9a-f]{7,40}\b`)
)

// checkMarkdown checks the Markdown without its code.
func checkMarkdown(t *testing.T, s string) {
	t.Helper()
	v := hostile(s)
	out := markdown(t, v)
	for _, r := range out + text(t, v) {
		if r != '\n' && r != '\u200b' && !unicode.IsPrint(r) {
			t.Fatalf("%q: %q is printed in\n%s", s, r, out)
		}
	}
	for _, tag := range ourTags.FindAllString(out, -1) {
		if inside := strings.TrimPrefix(tag, "<details><summary><code>"); strings.Contains(html.UnescapeString(inside),
			"\n") {
			t.Fatalf("%q: %q", s, tag)
		}
	}
	left := withoutCode(t, ourTags.ReplaceAllString(out, ""))
	left = regexp.MustCompile(`\\[[:punct:]]`).ReplaceAllString(left, " ") // escaped characters
	if strings.ContainsAny(left, "<>`[]\\") || strings.Contains(strings.ReplaceAll(left, "- **", ""), "***") {
		t.Fatalf("%q: there is markup in\n%s\nof\n%s", s, left, out)
	}
	if found := mentions.FindAllString(regexp.MustCompile(`(?m)^#+ `).ReplaceAllString(left, ""), -1); len(found) > 0 {
		t.Fatalf("%q: there are links in\n%s\n%q", s, left, found)
	}
	if want := strings.Count(out, "\n<details>"); strings.Count(out, "\n</details>") != want {
		t.Fatalf("%q: a <details> has no end in\n%s", s, out)
	}
}

// withoutCode takes out blocks and spans of code, as Markdown finds them.
func withoutCode(t *testing.T, text string) string {
	t.Helper()
	fence := ""
	var left strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		case fence != "" && strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, "`") == "":
			fence = ""
		case fence == "":
			left.WriteString(withoutSpans(line))
		}
	}
	if fence != "" {
		t.Fatalf("a block of code has no end in\n%s", text)
	}
	return left.String()
}

var backticks = regexp.MustCompile("`+")

func withoutSpans(line string) string {
	left := ""
	for {
		values := backticks.FindStringIndex(line)
		if values == nil {
			return left + line
		}
		if values[0] > 0 && line[values[0]-1] == '\\' { // it is escaped
			left, line = left+line[:values[0]+1], line[values[0]+1:]
			continue
		}
		fence, rest := line[values[0]:values[1]], line[values[1]:]
		end := -1
		for _, next := range backticks.FindAllStringIndex(rest, -1) {
			if next[1]-next[0] == len(fence) {
				end = next[1]
				break
			}
		}
		if end < 0 {
			return left + line
		}
		left, line = left+line[:values[0]], rest[end:]
	}
}

func TestMarkdownIsNeverTooLong(t *testing.T) {
	for name, size := range map[string]struct{ components, objects, fields, warnings int }{
		"many objects": {20, 200, 1, 0}, "many fields": {3, 10, 500, 0}, "many components": {5_000, 1, 3, 0},
		"many warnings": {2, 1, 1, 1_000}, "many of all": {300, 10, 40, 500},
	} {
		t.Run(name, func(t *testing.T) {
			var steps []plan.ObjectPlan
			for c := range size.components {
				for o := range size.objects {
					var changes []plan.FieldChange
					for f := range size.fields {
						changes = append(changes,
							change(fmt.Sprintf("data.ö%d", f), strings.Repeat("ä<", 100), strings.Repeat("b", 100)))
					}
					steps = append(steps, configMap(plan.Changed, fmt.Sprint("c", c), fmt.Sprintf("o%d-%d", c, o),
						changes...))
				}
			}
			p := planOf(steps, nil)
			for range size.warnings {
				p.Warnings = append(p.Warnings,
					plan.Warning{Reason: plan.Orphan, ID: steps[0].ID, Message: strings.Repeat("<", 1000)})
			}
			out := markdown(t, show.Printer{Plan: p, Command: "runlevel plan OLD NEW"})
			if len(out) >= 60_000 {
				t.Errorf("it has %d bytes", len(out))
			}
			if !strings.HasSuffix(out, "run `runlevel plan OLD NEW`.\n") {
				t.Errorf("got %s at the end, want a note on the cut parts", out[len(out)-300:])
			}
			// Each object is either shown or counted as cut.
			shown := strings.Count(out, "- **changed** ")
			cut := number(out, `(\d+) more objects?`)
			if shown+cut != len(steps) {
				t.Errorf("%d objects are shown and %d cut, of %d", shown, cut, len(steps))
			}
			if warnings := strings.Count(out, "- `ConfigMap o0-0`: "); warnings+
				number(out, `(\d+) more warning`) != size.warnings {
				t.Errorf("%d warnings are shown, of %d", warnings, size.warnings)
			}
		})
	}
}

// TestEscapedMarkdownIsNotTooLong: an escaped character may take ten characters.
func TestEscapedMarkdownIsNotTooLong(t *testing.T) {
	hidden := strings.Repeat("\U000e0001", 1_000)
	var steps []plan.ObjectPlan
	p := planOf(nil, nil)
	for i := range 5_000 {
		steps = append(steps, configMap(plan.Changed, hidden, fmt.Sprint(hidden, i),
			change(hidden, hidden, hidden+"<")))
		p.Warnings = append(p.Warnings, plan.Warning{Reason: plan.Orphan, ID: steps[i].ID, Message: hidden})
	}
	p.Steps = steps
	p.From.Version, p.To.Version = hidden, hidden
	out := markdown(t, show.Printer{Plan: p, Command: "runlevel plan " + hidden})
	if len(out) >= 60_000 {
		t.Errorf("it has %d bytes", len(out))
	}
	if number(out, `(\d+) more warning`)+strings.Count(out, "\n- `ConfigMap") != len(p.Warnings) {
		t.Errorf("the shown and cut warnings are not %d: %.1000s", len(p.Warnings), out)
	}
}

// number is the first one that a pattern finds; 0 if it finds none.
func number(text, pattern string) int {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
