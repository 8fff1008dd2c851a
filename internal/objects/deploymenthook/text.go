package deploymenthook

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A text is the YAML of an annotation: its value, as Kubernetes parses it, and its nodes, which have the lines.
type text struct {
	value any
	root  *yaml.Node
}

// An errText is an error in a line of a text.
type errText struct {
	line, column int
	message      string
}

func (e *errText) Error() string { return e.message }

var errorLine = regexp.MustCompile(`line (\d+): `)

// readText reads a text of one document. Errors do not quote the text, which may be secret.
func readText(written string) (*text, error) {
	if at := strings.IndexAny(written, "\u0085\u2028\u2029\ufeff"); at >= 0 { // one library reads a comment, the other a value
		return nil, &errText{1 + strings.Count(written[:at], "\n"), 1, "this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in hooks: write them as \\u2028 within double quotes"}
	}
	var document, rest yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(written))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return &text{}, nil
	} else if err != nil {
		return nil, syntaxError(err, written)
	}
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, &errText{max(rest.Line, 1), 1, "it has more than one document: write pre, mid and post into one"}
	}
	if len(document.Content) == 0 {
		return &text{}, nil
	}
	read := &text{root: document.Content[0]}
	if err := ordinary(read.root); err != nil {
		return nil, err
	}
	if err := utilyaml.Unmarshal([]byte(written), &read.value); err != nil {
		return nil, syntaxError(err, written)
	}
	return read, nil
}

// syntaxError returns the syntax error of a text, with the line.
func syntaxError(err error, written string) *errText {
	message, _, _ := strings.Cut(err.Error(), "\n")
	line := 1
	if found := errorLine.FindStringSubmatch(message); found != nil {
		line, _ = strconv.Atoi(found[1])
		message = strings.Replace(message, found[0], "", 1)
	}
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	switch { // these quote the text
	case strings.HasPrefix(message, "unknown anchor"):
		message = aliasMessage
	case strings.Contains(message, "map key"):
		message = "a key is a mapping or a list, and must be a text: put braces in quotes if they are one"
	default:
		message = "it is no valid YAML: " + message
	}
	last := 1 + strings.Count(strings.TrimRight(written, " \n"), "\n")
	return &errText{max(min(line, last), 1), 1, message}
}

const aliasMessage = `anchors and aliases are not allowed in hooks: write out what they stand for, and put a text that begins with "&" or "*" in quotes`

// ordinary returns an error for anchors, aliases, tags and duplicate keys of a mapping: readers would misunderstand
// such a text.
func ordinary(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return &errText{node.Line, node.Column, aliasMessage}
	case node.Style&yaml.TaggedStyle != 0:
		return &errText{node.Line, node.Column, `tags are not allowed in hooks: put a text that begins with "!" in quotes`}
	}
	seen := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[child.Value] {
				return &errText{child.Line, child.Column, fmt.Sprintf("the key %q stands twice in the same mapping: keep one of them", printable.Truncate(child.Value, maxQuoted))}
			}
			seen[child.Value] = true
		}
		if err := ordinary(child); err != nil {
			return err
		}
	}
	return nil
}

// at returns the node of a field: its key, or the item of a list. If the path does not exist, it is the node of its
// longest existing part.
func (t *text) at(path []string) (line, column int) {
	line, column, node := 1, 1, t.root
	if node != nil {
		line, column = node.Line, node.Column
	}
	for _, step := range path {
		place, value := child(node, step)
		if place == nil {
			break
		}
		line, column, node = place.Line, place.Column, value
	}
	return line, column
}

// child returns the key and the value of a field of a mapping, or the item of a list as both.
func child(node *yaml.Node, step string) (place, value *yaml.Node) {
	if node == nil {
		return nil, nil
	}
	for i, content := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode && strconv.Itoa(i) == step:
			return content, content
		case node.Kind == yaml.MappingNode && i%2 == 0 && content.Value == step:
			return content, node.Content[i+1]
		}
	}
	return nil, nil
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
