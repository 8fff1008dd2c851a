package yamltext

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A Span is the range of a value in a text, as offsets of bytes.
type Span struct {
	Start, End int
	Unescaped  string // the value, if it has escapes such as \n; otherwise the text is the value
}

// Values returns where the values of a YAML file with any number of documents are, in order: each is a scalar without
// its quotes, indicator, anchor and tag. Keys and comments are not values. Of a JSON file it returns the texts.
func Values(text []byte) ([]Span, error) {
	if found, isJSON := jsonTexts(text); isJSON {
		return found, nil
	}
	mark := len(text) - len(bytes.TrimPrefix(text, []byte("\ufeff")))
	if odd := OddBreak(text[mark:]); odd >= 0 || bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n")) {
		return nil, &TextError{Message: "it has line breaks of an unusual kind: save the file with line feeds"}
	}
	w := valueWalk{text: text, lines: []int{mark}}
	for offset, char := range text {
		if char == '\n' {
			w.lines = append(w.lines, offset+1)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return w.found, nil
		} else if err != nil {
			return nil, Explain(err, text)
		}
		if err := w.add(&document); err != nil {
			return nil, err
		}
	}
}

// jsonTexts returns where the texts of a JSON file are. Some JSON is not YAML.
func jsonTexts(text []byte) (found []Span, isJSON bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		start := int(decoder.InputOffset())
		token, err := decoder.Token()
		if err != nil {
			return found, errors.Is(err, io.EOF)
		}
		value, isText := token.(string)
		end := int(decoder.InputOffset())
		if !isText || bytes.HasPrefix(bytes.TrimSpace(text[end:]), []byte(":")) {
			continue // it is no text, or a key
		}
		span := Span{Start: start + bytes.IndexByte(text[start:], '"') + 1, End: end - 1}
		if bytes.IndexByte(text[span.Start:span.End], '\\') >= 0 {
			span.Unescaped = value
		}
		found = append(found, span)
	}
}

// A valueWalk collects the values of documents.
type valueWalk struct {
	text  []byte
	lines []int // offsets of the lines
	found []Span
}

func (w *valueWalk) add(node *yaml.Node) error {
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if err := w.add(child); err != nil {
			return err
		}
	}
	if node.Kind != yaml.ScalarNode || node.Value == "" {
		return nil
	}
	span, found := w.spanOf(node)
	if !found {
		return &TextError{Line: node.Line, Column: node.Column,
			Message: "the place of this value can't be determined: " +
				"write it in one line and in quotes"}
	}
	if node.Style&yaml.DoubleQuotedStyle != 0 && bytes.IndexByte(w.text[span.Start:span.End], '\\') >= 0 {
		span.Unescaped = node.Value
	}
	w.found = append(w.found, span)
	return nil
}

// spanOf returns where the value of a scalar is. The parser only reports where the scalar begins.
func (w *valueWalk) spanOf(node *yaml.Node) (Span, bool) {
	start := w.offset(node.Line, node.Column)
	for start < len(w.text) && (w.text[start] == '&' || w.text[start] == '!') { // its anchor and tag
		start = w.skip(w.skip(start, isNotSpace), unicode.IsSpace)
	}
	if start >= len(w.text) {
		return Span{}, false
	}
	switch quote := w.text[start]; {
	case node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		end := start + 1
		for ; end < len(w.text); end++ {
			isEscape := quote == '"' && w.text[end] == '\\' ||
				quote == '\'' && bytes.HasPrefix(w.text[end:], []byte("''"))
			if isEscape {
				end++ // the next character is part of the value
			} else if w.text[end] == quote {
				break
			}
		}
		return Span{Start: start + 1, End: end}, end < len(w.text)
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		line := bytes.IndexByte(w.text[start:], '\n')
		return w.match(node.Value, start+line+1)
	default:
		return w.match(node.Value, start)
	}
}

// match returns the part of the text at an offset that has the characters of a value, with any blanks between them.
func (w *valueWalk) match(value string, start int) (Span, bool) {
	end := start
	for _, char := range value {
		if unicode.IsSpace(char) {
			continue
		}
		end = w.skip(end, unicode.IsSpace)
		read, size := utf8.DecodeRune(w.text[end:])
		if read != char {
			return Span{}, false
		}
		end += size
	}
	return Span{Start: start, End: end}, true
}

// offset returns the offset of a line and a column, which counts characters.
func (w *valueWalk) offset(line, column int) int {
	if line > len(w.lines) {
		return len(w.text)
	}
	offset := w.lines[line-1]
	for ; column > 1 && offset < len(w.text); column-- {
		_, size := utf8.DecodeRune(w.text[offset:])
		offset += size
	}
	return offset
}

// skip returns the offset of the first character from an offset on that a function does not accept.
func (w *valueWalk) skip(offset int, accepts func(rune) bool) int {
	return len(w.text) - len(bytes.TrimLeftFunc(w.text[offset:], accepts))
}

func isNotSpace(char rune) bool { return !unicode.IsSpace(char) }
