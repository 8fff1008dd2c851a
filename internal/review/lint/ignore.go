package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ignores are the entries of the configuration and the comments of the manifests that ignore findings.
type ignores struct {
	byFile []*ignoreEntry // entries of the configuration
	inside map[string][]*ignoreEntry
	ran    []string // the rules that ran
	config Config
	change *ComponentChange
	bad    []Finding
}

// An ignoreEntry ignores the findings of one rule about a manifest, or a file.
type ignoreEntry struct {
	Ignore
	place    Finding // place of the comment or entry
	document int     // the document it applies to; 0 for all of the file
	used     bool
}

func newIgnores(s *subject, ran []string) *ignores {
	i := &ignores{inside: map[string][]*ignoreEntry{}, ran: ran, config: s.config, change: s.change}
	for _, ignore := range s.config.Ignore {
		i.add(&ignoreEntry{Ignore: *ignore, place: Finding{File: s.config.file, Line: ignore.line, In: InConfig}}, true)
	}
	for _, file := range s.Files {
		i.addComments(file.Path, 0, 1, file.Comments)
	}
	for _, exclusion := range s.Excluded { // few rules check these, so their comments may be unused
		i.addComments(exclusion.Manifest.Path, exclusion.Manifest.Document, exclusion.Manifest.TextLine(),
			exclusion.Manifest.Text())
	}
	for _, all := range i.inside {
		for _, entry := range all {
			entry.used = entry.document > 0
		}
	}
	for _, m := range s.manifests {
		i.addComments(m.Path, m.Document, m.TextLine(), m.Text())
	}
	return i
}

// add adds a valid entry. An invalid one becomes a finding.
func (i *ignores) add(entry *ignoreEntry, fromConfig bool) {
	wrong := ""
	if _, known := FindRule(entry.Rule); entry.Rule == "" {
		wrong = "this ignores no rule: write a rule and a reason"
	} else if !known {
		wrong = fmt.Sprintf("unknown rule %q%s", entry.Rule, DidYouMean(entry.Rule))
	} else if strings.TrimSpace(entry.Reason) == "" {
		wrong = fmt.Sprintf("%s is ignored without a reason: write the reason after the rule", entry.Rule)
	}
	if wrong != "" {
		bad := entry.place
		bad.Rule, bad.Message = "bad-ignore", wrong
		i.bad = append(i.bad, bad)
		return
	}
	if fromConfig {
		i.byFile = append(i.byFile, entry)
	} else {
		i.inside[entry.place.File] = append(i.inside[entry.place.File], entry)
	}
}

// ignoreComment matches a comment that ignores a rule, at the start of a line or after a blank.
var ignoreComment = regexp.MustCompile(`(?m)(?:^|[ \t])(#[ \t]*runlevel:ignore\b:?)[ \t]*([^\s,:]*)[,:]?[ \t]*(.*)`)

// addComments finds the comments in a text that begins in some line of its file.
func (i *ignores) addComments(file string, document, line int, text []byte) {
	if !bytes.Contains(text, []byte("runlevel:ignore")) {
		return
	}
	matches := ignoreComment.FindAllSubmatchIndex(text, -1)
	begins := make([]int, len(matches))
	for n, match := range matches {
		begins[n] = match[2]
	}
	var isComment []bool // the head of a file has nothing else
	if document > 0 {
		isComment = payload.AreComments(text, begins)
	}
	counted := 0 // lines are counted up to here
	for n, match := range matches {
		if document > 0 && !isComment[n] {
			continue
		}
		line += bytes.Count(text[counted:begins[n]], []byte("\n"))
		counted = begins[n]
		ignore := Ignore{
			Rule:   string(text[match[4]:match[5]]),
			Reason: strings.TrimSpace(string(text[match[6]:match[7]])),
		}
		place := Finding{File: file, Line: line, Column: columnAt(text, begins[n]), Document: document}
		i.add(&ignoreEntry{Ignore: ignore, place: place, document: document}, false)
	}
}

// columnAt returns the column of an offset in a text, in characters, from 1.
func columnAt(text []byte, offset int) int {
	return 1 + utf8.RuneCount(text[1+bytes.LastIndexByte(text[:offset], '\n'):offset])
}

// suppress returns the entry that ignores a finding, as a Suppression; nil if there is none.
func (i *ignores) suppress(f Finding) *Suppression {
	var why *Suppression
	try := func(entry *ignoreEntry) {
		if entry.covers(f, i.change.nameOf(f.File, f.In)) {
			entry.used = true
			why = &Suppression{Reason: entry.Reason, File: entry.place.File, Line: entry.place.Line, In: entry.place.In}
		}
	}
	if f.In == InPayload { // comments of the previous payload can't be changed any more, so they do not count
		for _, entry := range i.inside[f.File] {
			try(entry)
		}
	}
	for _, entry := range i.byFile {
		try(entry)
	}
	return why
}

// covers reports whether the entry ignores a finding. Name is the name of the finding's file in the component's
// folder.
func (i *ignoreEntry) covers(f Finding, name string) bool {
	isElsewhere := i.document > 0 && f.Document > 0 && i.document != f.Document
	if i.Rule != f.Rule || isElsewhere || i.Object != "" && i.Object != f.Object {
		return false
	}
	if i.document > 0 || i.File == "" {
		return true
	}
	return slices.ContainsFunc([]string{f.File, path.Base(f.File), name, path.Base(name)}, func(name string) bool {
		matches, _ := path.Match(i.File, name)
		return matches
	})
}

// unusedEntries returns the findings about unused and invalid entries.
func (i *ignores) unusedEntries() []Finding {
	var found []Finding
	report := func(id string, f Finding) {
		rule, _ := FindRule(id)
		if severity := i.config.severity(rule); severity != Off {
			f.Rule, f.Severity, f.Message = id, severity, printable.Line(f.Message)
			found = append(found, f)
		}
	}
	for _, bad := range i.bad {
		report(bad.Rule, bad)
	}
	unused := func(all []*ignoreEntry) {
		for _, entry := range all {
			if !entry.used && slices.Contains(i.ran, entry.Rule) {
				f := entry.place
				f.Message = fmt.Sprintf("%s finds nothing here: drop the comment or entry that ignores it", entry.Rule)
				report("unused-ignore", f)
			}
		}
	}
	unused(i.byFile)
	for _, file := range sortedKeys(i.inside) {
		unused(i.inside[file])
	}
	return found
}
