package deploymenthook

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// A text is the YAML of an annotation: its value, as Kubernetes parses it, and the positions of its fields.
type text struct {
	value  any
	root   *yaml.Node
	places *yamltext.FieldPlaces
}

// readText reads a text of one document. Its errors are of type *yamltext.TextError, and do not quote the text, which may be
// secret.
func readText(written string) (*text, error) {
	content := []byte(written)
	if at := yamltext.OddBreak(content); at >= 0 { // one library reads a comment, the other a value
		return nil, &yamltext.TextError{Line: yamltext.LineAt(content, int64(at)), Column: 1, Message: "this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in hooks: write them as \\u2028 within double quotes"}
	}
	root, err := yamltext.Parse(content)
	var more *yamltext.TextError
	if errors.As(err, &more) {
		return nil, &yamltext.TextError{Line: max(more.Line, 1), Column: 1, Message: "it has more than one document: write pre, mid and post into one"}
	} else if err != nil {
		return nil, syntaxError(err, written)
	}
	read := &text{root: root, places: yamltext.NewPlaces(root)}
	if root == nil {
		return read, nil
	}
	if err := ordinary(read.root); err != nil {
		return nil, err
	}
	if twice := yamltext.RepeatedKeys(read.root); len(twice) > 0 {
		return nil, &yamltext.TextError{Line: twice[0].Line, Column: twice[0].Column, Message: fmt.Sprintf("the key %q stands twice in the same mapping: keep one of them", printable.Truncate(twice[0].Key, maxQuoted))}
	}
	if err := utilyaml.Unmarshal(content, &read.value); err != nil {
		return nil, syntaxError(err, written)
	}
	return read, nil
}

// syntaxError returns the syntax error of a text, with the line.
func syntaxError(err error, written string) *yamltext.TextError {
	syntax := yamltext.ErrorOf(err)
	switch { // these quote the text
	case strings.HasPrefix(syntax.Message, "unknown anchor"):
		syntax.Message = aliasMessage
	case strings.Contains(syntax.Message, "map key"):
		syntax.Message = "a key is a mapping or a list, and must be a text: put braces in quotes if they are one"
	default:
		syntax.Message = "it is no valid YAML: " + syntax.Message
	}
	last := 1 + strings.Count(strings.TrimRight(written, " \n"), "\n")
	syntax.Line, syntax.Column = max(min(syntax.Line, last), 1), 1
	return syntax
}

const aliasMessage = `anchors and aliases are not allowed in hooks: write out what they stand for, and put a text that begins with "&" or "*" in quotes`

// ordinary returns an error for anchors, aliases and tags: readers would misunderstand such a text.
func ordinary(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return &yamltext.TextError{Line: node.Line, Column: node.Column, Message: aliasMessage}
	case node.Style&yaml.TaggedStyle != 0:
		return &yamltext.TextError{Line: node.Line, Column: node.Column, Message: `tags are not allowed in hooks: put a text that begins with "!" in quotes`}
	}
	for _, child := range node.Content {
		if err := ordinary(child); err != nil {
			return err
		}
	}
	return nil
}

// nameOf returns a path as people write it: pre.execNewPod.env[1].name.
func nameOf(path []string) string {
	var name strings.Builder
	for _, step := range path {
		switch _, err := strconv.Atoi(step); {
		case err == nil:
			fmt.Fprintf(&name, "[%s]", step)
		case name.Len() > 0:
			name.WriteString("." + step)
		default:
			name.WriteString(step)
		}
	}
	return name.String()
}

// describe returns the type of a value in words.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "empty"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	default:
		return "a number"
	}
}
