package payload

import (
	"strings"
	"unicode/utf8"

	yaml3 "go.yaml.in/yaml/v3"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// hookProblems returns the problems of the hooks of a Deployment.
func (d *document) hookProblems(m *Manifest) []Problem {
	if m.IsTombstone() {
		return nil
	}
	var problems []Problem
	for _, found := range deploymenthook.Check(m.object) {
		problem := d.problem(Cause(found.Rule), found.Path, "%s", found.Message)
		if found.Line > 0 {
			problem.Line, problem.Column = d.places.within(found.Line, found.Column, found.Path...)
			problem.Message = deploymenthook.Annotation + ": " + found.Message
		}
		problems = append(problems, problem)
	}
	return problems
}

// within returns the position in the file of a line and column of a field's text. If the file has the text in another
// form, with escapes for example, it returns the position of the field.
func (p *Places) within(line, column int, path ...string) (fileLine, fileColumn int) {
	if at, before, exists := p.lineOf(p.Node(path...), line); exists {
		return p.text.fileLine(at), before + column
	}
	return p.At(path...)
}

// lineOf finds a line of a field's text in the document: its line, and how many characters are before it.
func (p *Places) lineOf(node *yaml3.Node, line int) (at, before int, exists bool) {
	if node == nil || node.Kind != yaml3.ScalarNode {
		return 0, 0, false
	}
	valueLines := strings.Split(node.Value, "\n")
	if line > len(valueLines) || valueLines[line-1] == "" {
		return 0, 0, false
	}
	switch {
	case node.Style == yaml3.LiteralStyle: // its lines begin below the "|", indented
		at = node.Line + line
		before = utf8.RuneCountInString(p.line(at)) - utf8.RuneCountInString(valueLines[line-1])
	case len(valueLines) == 1:
		at, before = node.Line, node.Column-1
		if isQuoted(node) {
			before++
		}
	}
	return at, before, before >= 0 && strings.HasPrefix(behind(p.line(at), before), valueLines[line-1])
}

// line returns a line of the document, without its line break.
func (p *Places) line(number int) string {
	lines := strings.Split(string(p.text.text), "\n")
	if number < 1 || number > len(lines) {
		return ""
	}
	return strings.TrimSuffix(lines[number-1], "\r")
}

// behind returns a text without its first characters.
func behind(text string, characters int) string {
	runes := []rune(text)
	return string(runes[min(characters, len(runes)):])
}
