// Package yamltext reads YAML with positions: it parses one document as nodes, finds the lines of fields and repeated
// keys, and returns errors with a line that do not quote the text.
//
// The package decodes no values: the packages that read manifests, hooks and configurations do, each by its own rules.
//
// Start with Parse; ParseFile is the one for a file that has one document.
package yamltext

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// A TextError is an error in a text, with its position.
type TextError struct {
	Line, Column int // 0 if not known
	Message      string
}

func (e *TextError) Error() string { return e.Message }

// Parse parses one document; the node is nil when it is empty. A second document is a *TextError.
func Parse(text []byte) (*yaml.Node, error) {
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var rest yaml.Node
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		// Kubernetes' decoder would drop the rest silently.
		line := rest.Line
		if err != nil {
			line = ErrorOf(err).Line
		}
		return nil, &TextError{
			Line:    line,
			Message: `there is more after the end of the document: put "---" on a line of its own between two documents`,
		}
	}
	if len(root.Content) == 0 {
		return nil, nil
	}
	return root.Content[0], nil
}

// ParseFile parses a file of one document; the node is nil when it is empty. Its errors have the correction, if one is
// known.
func ParseFile(text []byte) (*yaml.Node, *TextError) {
	root, err := Parse(text)
	var more *TextError
	switch {
	case err == nil:
		return root, nil
	case errors.As(err, &more):
		return nil, &TextError{
			Line:    more.Line,
			Message: `the file has one document only: remove "---" and everything below it`,
		}
	default:
		return nil, Explain(err, text)
	}
}

// OddBreak returns the offset of a Unicode line break or byte order mark in a text; -1 if
// it has none.
func OddBreak(text []byte) int {
	for _, odd := range []string{"\u0085", "\u2028", "\u2029", "\ufeff"} { // each alone is much faster than all at once
		if offset := bytes.Index(text, []byte(odd)); offset >= 0 {
			return offset
		}
	}
	return -1
}

// A RepeatedKey is a key that a mapping has twice. The last one counts.
type RepeatedKey struct {
	Key          string
	Line, Column int
}

// RepeatedKeys finds the keys that are twice in a mapping, by their text.
func RepeatedKeys(node *yaml.Node) []RepeatedKey {
	var found []RepeatedKey
	seen := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
			if seen[child.Value] {
				found = append(found, RepeatedKey{Key: child.Value, Line: child.Line, Column: child.Column})
			}
			seen[child.Value] = true
		}
		found = append(found, RepeatedKeys(child)...)
	}
	return found
}
