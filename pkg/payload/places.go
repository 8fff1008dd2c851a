package payload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	yaml3 "go.yaml.in/yaml/v3"
)

// Places has the positions of a manifest's fields in its file.
type Places struct {
	text     chunk
	root     *yaml3.Node
	children map[*yaml3.Node]map[string]field // cached: there may be thousands of problems
}

// newPlaces parses a text once more, which is only done to report a problem.
func newPlaces(text chunk) *Places {
	root, err := parseNode(text.text)
	if err != nil {
		root = nil
	}
	return &Places{text: text, root: root, children: map[*yaml3.Node]map[string]field{}}
}

// At returns the line and column of a field. The path has keys of mappings, and indexes of
// lists. If the field does not exist, it is the position of its last parent that does. Columns
// are counted in characters, from 1.
func (p *Places) At(path ...string) (line, column int) {
	line, column, node := 1, 1, p.root
	if node != nil {
		line, column = node.Line, node.Column
	}
	for _, step := range path {
		next, found := p.child(node, step)
		if !found {
			break
		}
		line, column, node = next.line, next.column, next.value
	}
	return p.text.fileLine(line), column
}

// node returns the value of a field; nil if there is none.
func (p *Places) node(path ...string) *yaml3.Node {
	node := p.root
	for _, step := range path {
		next, found := p.child(node, step)
		if !found {
			return nil
		}
		node = next.value
	}
	return node
}

// scalar returns the text of a scalar field; "" if there is none.
func (p *Places) scalar(path ...string) string {
	node := p.node(path...)
	if node == nil || node.Kind != yaml3.ScalarNode {
		return ""
	}
	return node.Value
}

// A field is the position and value of a key of a mapping, or of an item of a list.
type field struct {
	line, column int
	value        *yaml3.Node
}

// child returns a key of a mapping or an item of a list.
func (p *Places) child(node *yaml3.Node, step string) (field, bool) {
	if node == nil {
		return field{}, false
	}
	if node.Kind == yaml3.AliasNode {
		node = node.Alias
	}
	children, known := p.children[node]
	if !known {
		children = fieldsOf(node)
		p.children[node] = children
	}
	found, ok := children[step]
	return found, ok
}

func fieldsOf(node *yaml3.Node) map[string]field {
	fields := make(map[string]field, len(node.Content))
	for i, content := range node.Content {
		switch {
		case node.Kind == yaml3.SequenceNode:
			fields[strconv.Itoa(i)] = field{content.Line, content.Column, content}
		case node.Kind == yaml3.MappingNode && i%2 == 0:
			fields[content.Value] = field{content.Line, content.Column, node.Content[i+1]}
		}
	}
	return fields
}

// AreComments returns for offsets of # in a document's text whether a comment
// begins there: text behind such a # is in no value. The document is decoded
// twice, however many offsets there are.
func AreComments(text []byte, at []int) []bool {
	found := make([]bool, len(at))
	if _, err := decode(text); err != nil {
		return found
	}
	mark := "runlevel-mark"
	for bytes.Contains(text, []byte(mark)) {
		mark += "-"
	}
	var marked bytes.Buffer
	last := 0
	for i, place := range at {
		marked.Write(text[last : place+1])
		fmt.Fprintf(&marked, "%s%d;", mark, i)
		last = place + 1
	}
	marked.Write(text[last:])
	with, err := decode(marked.Bytes())
	if err != nil {
		return found
	}
	for i := range found {
		found[i] = true
	}
	strike := func(text string) {
		for {
			_, rest, more := strings.Cut(text, mark)
			if !more {
				return
			}
			number, behind, _ := strings.Cut(rest, ";")
			if i, err := strconv.Atoi(number); err == nil && i < len(found) {
				found[i] = false
			}
			text = behind
		}
	}
	eachText(with.value, strike)
	return found
}

// eachText calls a function with all keys and values that are strings.
func eachText(value any, call func(string)) {
	switch value := value.(type) {
	case string:
		call(value)
	case []any:
		for _, item := range value {
			eachText(item, call)
		}
	case map[string]any:
		for key, item := range value {
			call(key)
			eachText(item, call)
		}
	}
}
