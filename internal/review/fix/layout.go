package fix

import (
	"bytes"
	"unicode/utf8"

	yaml3 "go.yaml.in/yaml/v3"
)

// A layout knows where the scalars of a document stand, in bytes. It is careful: where it
// can't be sure, it says so. JSON is YAML to it.
type layout struct {
	text  []byte
	lines []int       // where they begin
	root  *yaml3.Node // nil if the text can't be read
}

// A span is a piece of a text.
type span struct{ start, end int }

// layOut reads a text, which may have characters that YAML's libraries take for line
// breaks and others don't. Lines can't be counted then.
func layOut(text []byte) *layout {
	l := &layout{text: text, lines: []int{0}}
	for _, odd := range []string{"\u0085", "\u2028", "\u2029", "\ufeff"} {
		if bytes.Contains(text, []byte(odd)) {
			return l
		}
	}
	if bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n")) {
		return l
	}
	var document yaml3.Node
	if err := yaml3.Unmarshal(text, &document); err != nil || len(document.Content) != 1 {
		return l
	}
	l.root = document.Content[0]
	for i, c := range text {
		if c == '\n' {
			l.lines = append(l.lines, i+1)
		}
	}
	return l
}

// value is where a value stands that is a scalar: at a path of keys, each of which stands
// in its mapping once, and without a tag, an anchor or an alias. Where there is none, it
// is where the last key of the path stands that there is.
func (l *layout) value(path []string) (span, bool) {
	key, value, ok := l.find(path)
	if ok {
		if at, simple := l.scalar(value); simple {
			return at, true
		}
	}
	at := l.offset(key)
	return span{at, at}, false
}

// find is the key at the end of a path, and its value.
func (l *layout) find(path []string) (key, value *yaml3.Node, ok bool) {
	key, value = l.root, l.root
	for _, step := range path {
		next := pairs(value, step)
		if len(next) != 2 {
			return key, nil, false
		}
		key, value = next[0], next[1]
	}
	return key, value, value != nil
}

// pairs are the keys of a name in a mapping, each with its value behind it.
func pairs(node *yaml3.Node, name string) []*yaml3.Node {
	if node == nil || node.Kind != yaml3.MappingNode {
		return nil
	}
	var found []*yaml3.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Kind == yaml3.ScalarNode && node.Content[i].Value == name {
			found = append(found, node.Content[i], node.Content[i+1])
		}
	}
	return found
}

// offset is where a node begins; 0 if that is not known.
func (l *layout) offset(node *yaml3.Node) int {
	if node == nil || node.Line < 1 || node.Line > len(l.lines) {
		return 0
	}
	at := l.lines[node.Line-1]
	for range node.Column - 1 { // which counts characters
		_, size := utf8.DecodeRune(l.text[at:])
		at += size
	}
	return at
}

// scalar is where a scalar stands, with its quotes. It must be what it seems to be: a tag
// or an anchor would stand in front of it.
func (l *layout) scalar(node *yaml3.Node) (span, bool) {
	if node.Kind != yaml3.ScalarNode || node.Anchor != "" {
		return span{}, false
	}
	start := l.offset(node)
	rest := l.text[start:]
	length := 0
	switch {
	case node.Style&yaml3.DoubleQuotedStyle != 0:
		length = quotedLength(rest, '"')
	case node.Style&yaml3.SingleQuotedStyle != 0:
		length = quotedLength(rest, '\'')
	case node.Style&(yaml3.LiteralStyle|yaml3.FoldedStyle) == 0 && bytes.HasPrefix(rest, []byte(node.Value)):
		length = len(node.Value)
	}
	return span{start, start + length}, length > 0
}

// quotedLength is how long a text in quotes is; 0 if it is none.
func quotedLength(text []byte, quote byte) int {
	if len(text) == 0 || text[0] != quote {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case quote == '"' && text[i] == '\\':
			i++
		case text[i] != quote:
		case quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		default:
			return i + 1
		}
	}
	return 0
}
