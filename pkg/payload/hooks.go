package payload

import (
	"bytes"
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

// within returns the position in the file of a line and column of a field's text, if the field is a block that begins
// with "|"; otherwise the position of the field.
func (p *Places) within(line, column int, path ...string) (fileLine, fileColumn int) {
	node := p.Node(path...)
	if node == nil || node.Style != yaml3.LiteralStyle {
		return p.At(path...)
	}
	index, written, values := node.Line+line, bytes.Split(p.text.text, []byte("\n")), strings.Split(node.Value, "\n")
	if index > len(written) || line > len(values) || values[line-1] == "" {
		return p.At(path...)
	}
	indentation, _ := strings.CutSuffix(strings.TrimSuffix(string(written[index-1]), "\r"), values[line-1])
	return p.text.fileLine(index), utf8.RuneCountInString(indentation) + column
}
