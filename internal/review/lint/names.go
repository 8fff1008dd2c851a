package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules are about files and their names.

// checkFileName looks for files without a level, which are applied in alphabetical order.
// A folder where no file has a level is a folder of plain manifests.
func checkFileName(s *subject, r *reporter) {
	isNamed := func(file string) bool { return graph.ParseName(path.Base(file)).IsKnown() }
	var unnamed []string
	for _, file := range s.Files {
		if !isNamed(file.Path) {
			unnamed = append(unnamed, file.Path)
		}
	}
	if len(unnamed) == len(s.Files) {
		return
	}
	for _, file := range unnamed {
		r.file(file, 0, "the name has no level and component, so the file is applied in alphabetical order, and "+
			"nothing runs in parallel with it: call it 0000_LEVEL_COMPONENT_anything%s", path.Ext(file))
	}
}

// checkLevelWidth looks for levels whose order as text is not that of their numbers.
func checkLevelWidth(s *subject, r *reporter) {
	count := map[int]int{}
	for _, file := range s.Files {
		count[len(levelOf(file.Path))]++
	}
	usual := 0 // digits
	for width, files := range count {
		if width > 0 && (usual == 0 || files > count[usual] || files == count[usual] && width > usual) {
			usual = width
		}
	}
	for _, file := range s.Files {
		level := levelOf(file.Path)
		if level == "" || len(level) == usual {
			continue
		}
		instead := padNumber(level, usual)
		f := Finding{File: file.Path}
		todo := "call it 0000_" + instead + strings.TrimPrefix(path.Base(file.Path), "0000_"+level)
		if len(instead) != usual {
			todo = fmt.Sprintf("choose one with %s, or write the others with %d", printable.Count(usual, "digit"),
				len(instead))
		}
		f.Message = fmt.Sprintf("the level %s has %s, and others have %d; they are compared as text: %s", level,
			printable.Count(len(level), "digit"), usual, todo)
		r.report(f)
	}
}

func levelOf(file string) string { return graph.ParseName(path.Base(file)).Level }

// padNumber returns a number with leading zeros up to a number of digits.
func padNumber(level string, digits int) string {
	number := strings.TrimLeft(level, "0")
	return strings.Repeat("0", max(0, digits-len(number))) + number
}

// checkSplitComponent looks for components whose files are not consecutive: both folders of a
// release have some.
func checkSplitComponent(s *subject, r *reporter) {
	last := map[graph.Name]int{}
	for i, file := range s.Files {
		name := graph.ParseName(path.Base(file.Path))
		if !name.IsKnown() {
			continue
		}
		if before, seen := last[name]; seen && before != i-1 {
			r.file(file.Path, 0, "%s has files of level %s up to %s, with other files in between, so they are not "+
				"applied one after the other: put them into one folder",
				name.Component, name.Level, s.Files[before].Path)
		}
		last[name] = i
	}
}

// almostManifests are endings of the names of misspelt, backup and disabled manifests, which
// are not read.
var almostManifests = []string{
	".yaml~", ".yml~", ".json~", ".yaml.bak", ".yml.bak", ".yaml.orig", ".yml.orig", ".yaml.old", ".yml.old",
	".yaml.tmpl", ".yml.tmpl", ".yaml.swp", ".yml.swp", ".yam", ".ymal", ".yaml ", ".yml ", ".yamll", ".jsn",
	".yaml#", ".yml#", ".json#", ".yaml.rej", ".yml.rej", ".yalm", ".yaml.disabled", ".yml.disabled", ".yaml.txt",
	".yml.txt",
}

func checkIgnoredFile(s *subject, r *reporter) {
	for _, file := range s.Ignored {
		name := path.Base(file)
		lower := strings.ToLower(name)
		isMeant := slices.ContainsFunc(almostManifests, func(end string) bool { return strings.HasSuffix(lower, end) })
		if isMeant || payload.IsManifest(lower) || graph.ParseName(name).IsKnown() {
			r.file(file, 0, "it is not read: only files whose names end in .yaml, .yml or .json are read, and no "+
				"folders: rename it, or remove it from the release")
		}
	}
}

// checkFinalNewline looks for last lines without a line break.
func checkFinalNewline(s *subject, r *reporter) {
	for _, file := range s.Files {
		if file.UnendedLine > 0 {
			r.file(file.Path, file.UnendedLine,
				"the last line does not end with a line break: text appended to the file ends up in that line")
		}
	}
}

func checkEmptyDocument(s *subject, r *reporter) {
	broken := map[string]bool{}
	for _, p := range s.problems {
		broken[p.File] = true
	}
	for _, file := range s.Files {
		if file.Documents == 0 && !file.IsRendered && !broken[file.Path] {
			r.file(file.Path, 0, "the file has no manifest: was it cut off or commented out?")
			continue
		}
		for _, line := range file.Empty {
			r.file(file.Path, line, "this document is empty: was a manifest cut off or commented out?")
		}
	}
}
