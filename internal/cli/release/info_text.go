package release

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/release/info"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The sizes of the text: it is made for a terminal of 80 columns, and metadata may be of any length.
const (
	maxColumns   = 80
	labelColumns = len("  updates from:  ")
	maxMetadata  = 20  // keys
	maxValue     = 200 // characters of a value
	shortDigest  = len("sha256:") + 12
	shortCommit  = 9
)

// channelsKey is the key of release-metadata with the channels of an update service.
const channelsKey = "io.openshift.upgrades.graph.release.channels"

// An infoText prints a description as text.
type infoText struct {
	*info.Info
	pullSpecs bool
}

func (t infoText) print(out io.Writer) error {
	title := "release " + cmp.Or(strings.TrimSpace(t.Name+" "+t.Version), "without a name and a version")
	lines := []string{printable.Line(title)}
	if image := cmp.Or(t.Image, t.Digest); image != "" { // a digest with a label is wider than 80 columns
		lines = append(lines, "  "+image)
	}
	lines = append(lines, t.facts()...)
	var attached, signatures []string
	for _, a := range t.Attached {
		attached = append(attached, row(shorten(a.Digest), a.Type))
	}
	for _, s := range t.Signatures {
		signatures = append(signatures, row(s.Format, cmp.Or(s.Key, "-"), cmp.Or(s.Problem, core.Join(s.Consumers))))
	}
	for _, section := range []struct {
		title string
		rows  []string
	}{
		{"components:", t.componentRows()},
		{"images:", t.imageRows()},
		{"deletes:", objectRows(t.Tombstones)},
		{"deployment hooks:", objectRows(t.Hooks)},
		{"tests:", objectRows(t.Tests)},
		{"attached to the image:", attached},
		{"signatures, not verified:", withHeader(signatures, "FORMAT", "KEY", "READ BY")},
	} {
		lines = append(lines, withTitle(section.title, section.rows)...)
	}
	return core.PrintLines(out, lines)
}

// row returns a row of cells, each in one line.
func row(cells ...any) string {
	for i := range cells {
		cells[i] = printable.Line(fmt.Sprint(cells[i]))
	}
	return "  " + fmt.Sprintf(strings.Repeat("%s\t", len(cells)), cells...)
}

// withTitle returns a blank line, a title and aligned rows, or nothing if there are no rows.
func withTitle(title string, rows []string) []string {
	if len(rows) == 0 {
		return nil
	}
	lines := []string{"", title}
	for _, line := range core.Align(rows) {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// facts returns the lines on the release as a whole.
func (t infoText) facts() []string {
	var lines []string
	add := func(label, value string) {
		if value != "" {
			lines = append(lines, wrap(printable.Line(label)+":", printable.Line(value))...)
		}
	}
	add("created", t.Created)
	add("platforms", strings.Join(t.Platforms, ", "))
	add("base image", shorten(t.BaseDigest))
	add("updates from", strings.Join(t.Previous, ", "))
	add("updates to", strings.Join(t.Next, ", "))
	keys := slices.Sorted(maps.Keys(t.Metadata))
	for _, key := range keys[:min(maxMetadata, len(keys))] {
		value, isText := t.Metadata[key].(string)
		if !isText {
			encoded, _ := json.Marshal(t.Metadata[key]) // it was JSON
			value = string(encoded)
		}
		if key == channelsKey {
			key = "channels"
		}
		add(key, printable.Shorten(value, maxValue))
	}
	if more := len(keys) - maxMetadata; more > 0 {
		add("metadata", fmt.Sprintf("%d more with -o json", more))
	}
	add("versions", strings.Join(t.Versions, ", "))
	add("levels", strings.Join(t.Levels, ", "))
	objects := fmt.Sprint(t.Objects)
	if t.Excluded > 0 {
		objects += fmt.Sprintf(", and %d that the filters exclude", t.Excluded)
	}
	add("objects", objects)
	return lines
}

// wrap returns a label and its value. A value of several words has several lines if it is wide.
func wrap(label, value string) []string {
	line := fmt.Sprintf("  %-*s", labelColumns-2, label+" ")
	var lines []string
	for i, word := range strings.Fields(value) {
		if i > 0 && len(line)+len(word) > maxColumns {
			lines, line = append(lines, strings.TrimRight(line, " ")), strings.Repeat(" ", labelColumns)
		}
		line += word + " "
	}
	return append(lines, strings.TrimRight(line, " "))
}

func (t infoText) componentRows() []string {
	var rows []string
	for _, c := range t.Components {
		levels := strings.Join(c.Levels, ",")
		if last := len(c.Levels) - 1; last > 1 {
			levels = c.Levels[0] + "-" + c.Levels[last]
		}
		rows = append(rows, row(cmp.Or(c.Name, "(none)"), levels, c.Files, c.Objects, c.Tombstones))
	}
	return withHeader(rows, "NAME", "LEVELS", "FILES", "OBJECTS", "DELETES")
}

// withHeader returns rows with a header; none without rows.
func withHeader(rows []string, names ...any) []string {
	if len(rows) == 0 {
		return nil
	}
	return append([]string{row(names...)}, rows...)
}

func (t infoText) imageRows() []string {
	var rows []string
	for _, image := range t.Images {
		cells := []any{image.Name, specOf(image, t.pullSpecs)}
		switch size := image.Size; {
		case size != nil:
			cells = append(cells, size.Layers, inMegabytes(size.Bytes), inMegabytes(size.OwnBytes))
		case t.Size != nil:
			cells = append(cells, "?", "?", "?")
		default:
			cells = append(cells, shortenCommit(image.Commit))
		}
		rows = append(rows, row(cells...))
	}
	if t.Size == nil {
		return withHeader(rows, "NAME", "IMAGE", "COMMIT")
	}
	return append(withHeader(rows, "NAME", "IMAGE", "LAYERS", "SIZE", "OWN"),
		fmt.Sprintf("  %s for %s in %s; OWN is the size of layers that no other image has",
			inMegabytes(t.Size.Bytes), t.Size.Platform, printable.Count(t.Size.Layers, "layer")))
}

// specOf returns the pull spec of an image, or its shortened digest.
func specOf(image info.Image, isWhole bool) string {
	if isWhole {
		return image.Image
	}
	return shorten(image.Image)
}

// shorten returns the beginning of the digest of an image; the whole pull spec if it has none.
func shorten(spec string) string {
	digest := spec[strings.LastIndex(spec, "@")+1:]
	if !strings.HasPrefix(digest, "sha256:") {
		return spec
	}
	return digest[:min(shortDigest, len(digest))]
}

// shortenCommit returns the beginning of the hash of a commit.
func shortenCommit(commit string) string {
	return strings.ToValidUTF8(commit[:min(shortCommit, len(commit))], "")
}

// inMegabytes returns a size as registries and container engines print it.
func inMegabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func objectRows(objects []info.Object) []string {
	var rows []string
	for _, object := range objects {
		name := object.ID.String()
		for i, stage := range object.Stages {
			name += []string{": ", ", "}[min(i, 1)] + string(stage)
		}
		rows = append(rows, printable.Line(fmt.Sprintf("  %s (%s)", name, object.File)))
	}
	return rows
}

// printChanges prints the differences between two releases, without the plan. The signs are those of a plan.
func printChanges(out io.Writer, c *Changes, isWhole bool) error {
	lines := []string{"the metadata does not list this update, so an update service does not offer it"}
	if c.Listed {
		lines = []string{"the metadata lists this update"}
	}
	var rows []string
	for _, change := range c.Images {
		switch from, next := change.From, change.To; {
		case from == nil:
			rows = append(rows, row("+ "+change.Name, specOf(*next, isWhole), shortenCommit(next.Commit)))
		case next == nil:
			rows = append(rows, row("- "+change.Name))
		default:
			commits := shortenCommit(from.Commit) + " → " + shortenCommit(next.Commit)
			if from.Commit == next.Commit {
				commits = shortenCommit(from.Commit)
			}
			rows = append(rows, row("~ "+change.Name,
				specOf(*from, isWhole)+" → "+specOf(*next, isWhole), commits))
		}
	}
	return core.PrintLines(out, append(append(lines, withTitle("images:", rows)...), ""))
}
