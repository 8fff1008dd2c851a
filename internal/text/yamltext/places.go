package yamltext

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// FieldPlaces contains the positions of the fields of a document.
type FieldPlaces struct {
	root     *yaml.Node
	children map[*yaml.Node]map[string]field // cached: there may be thousands of problems
}

// NewPlaces returns the positions in a document; root is nil for an empty one.
func NewPlaces(root *yaml.Node) *FieldPlaces {
	return &FieldPlaces{root: root, children: map[*yaml.Node]map[string]field{}}
}

// At returns the line and column of a field. The path has keys of mappings, and indexes of
// lists. If the field does not exist, it is the position of its last parent that does. Columns
// are counted in characters, from 1.
func (p *FieldPlaces) At(path ...string) (line, column int) {
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
	return line, column
}

// Node returns the value of a field; nil if there is none.
func (p *FieldPlaces) Node(path ...string) *yaml.Node {
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

// Scalar returns the text of a scalar field; "" if there is none.
func (p *FieldPlaces) Scalar(path ...string) string {
	node := p.Node(path...)
	if node == nil || node.Kind != yaml.ScalarNode {
		return ""
	}
	return node.Value
}

// A field is the position and value of a key of a mapping, or of an item of a list.
type field struct {
	line, column int
	value        *yaml.Node
}

// child returns a key of a mapping or an item of a list.
func (p *FieldPlaces) child(node *yaml.Node, step string) (field, bool) {
	if node == nil {
		return field{}, false
	}
	if node.Kind == yaml.AliasNode {
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

func fieldsOf(node *yaml.Node) map[string]field {
	fields := make(map[string]field, len(node.Content))
	for i, content := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode:
			fields[strconv.Itoa(i)] = field{content.Line, content.Column, content}
		case node.Kind == yaml.MappingNode && i%2 == 0:
			fields[content.Value] = field{content.Line, content.Column, node.Content[i+1]}
		}
	}
	return fields
}
