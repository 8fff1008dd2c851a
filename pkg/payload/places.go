package payload

import (
	"strconv"

	yaml3 "go.yaml.in/yaml/v3"
)

// places finds out where the fields of a document are.
type places struct {
	root     *yaml3.Node
	children map[*yaml3.Node]map[string]field // of the nodes that were asked for: there may be thousands of problems
}

// A field is where something is in a mapping or a list, and what it is.
type field struct {
	line  int
	value *yaml3.Node
}

// child finds a key of a mapping or an item of a list.
func (p *places) child(node *yaml3.Node, step string) (field, bool) {
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
			fields[strconv.Itoa(i)] = field{content.Line, content}
		case node.Kind == yaml3.MappingNode && i%2 == 0:
			fields[content.Value] = field{content.Line, node.Content[i+1]}
		}
	}
	return fields
}
