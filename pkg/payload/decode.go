package payload

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
	"unique"

	yaml3 "go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// This file turns the text of one document into the value that Kubernetes'
// own decoder gives for it. sigs.k8s.io/yaml, which that decoder uses, reads YAML
// 1.1 by way of JSON and knows no lines. Here a document is parsed once, by
// yaml/v3, which keeps lines; ordinary values are converted by the few rules
// below, and whatever is not (tags, anchors, merge keys, keys that are no
// strings, text that yaml/v3 won't read) is left to sigs.k8s.io/yaml itself. So
// the two can't differ by more than these rules; FuzzDecode compares them.

// A decodedDocument contains the value of a document, and its repeated keys.
type decodedDocument struct {
	value    any
	size     size
	text     chunk // its source
	line     int   // line of the first node in that text; 0 if unknown
	repeated []yamltext.RepeatedKey
}

// decodeYAML reads one document, within the limits.
func (c chunk) decodeYAML() (decodedDocument, error) {
	if err := checkText(c.text, c.marks); err != nil {
		return decodedDocument{}, err
	}
	return decode(c.text)
}

// decode reads one document.
func decode(text []byte) (decodedDocument, error) {
	root, err := yamltext.Parse(text)
	var more *yamltext.TextError
	if errors.As(err, &more) {
		return decodedDocument{}, err
	}
	if err != nil || root == nil && isPeculiar(text) {
		return decodeCarefully(text, nil, err)
	}
	if root == nil {
		return decodedDocument{}, nil
	}
	size, err := sizer{}.measure(root)
	if err != nil {
		return decodedDocument{}, err
	}
	c := converter{tags: newTagFinder(text)}
	value, ordinary := any(nil), false
	if !isPeculiar(text) {
		value, ordinary = c.convert(root)
	}
	d := decodedDocument{value: value, line: root.Line, repeated: c.repeated}
	if !ordinary {
		d, err = decodeCarefully(text, root, nil)
	}
	d.size = size
	return d, err
}

// isPeculiar reports whether yaml/v3 reads a text differently: it allows more tabs and more line breaks than other
// parsers.
func isPeculiar(text []byte) bool {
	return bytes.IndexByte(text, '\t') >= 0 || yamltext.OddBreak(text) >= 0
}

// decodeCarefully reads a document the way Kubernetes does, slowly. The root is the
// result of yaml/v3, and the cause its error, if it failed.
func decodeCarefully(text []byte, root *yaml3.Node, cause error) (decodedDocument, error) {
	if cause == nil && mayHaveAliases(text) {
		if offset := yamltext.OddBreak(text); offset >= 0 {
			return decodedDocument{},
				&yamltext.TextError{Line: yamltext.LineAt(text, int64(offset)), Message: oddBreakMessage}
		}
	}
	var value any
	err := cause
	if cause == nil || !mayHaveAliases(text) { // else the size of the values of aliases is not known
		err = utilyaml.Unmarshal(text, &value)
	}
	if err == nil && root == nil {
		size, err := measureValue(value)
		return decodedDocument{value: value, size: size}, err
	}
	if err == nil {
		return decodedDocument{value: value, line: root.Line, repeated: yamltext.RepeatedKeys(root)}, nil
	}
	if cause == nil {
		cause = err
	}
	return decodedDocument{}, yamltext.Explain(cause, text)
}

// oddBreakMessage is for a text that yaml/v3 and Kubernetes split into different lines, so that one
// may find aliases where the other finds a comment.
const oddBreakMessage = "this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in a document that " +
	"may have aliases: write \\n or a line break instead"

// mayHaveAliases reports whether a text has the characters that anchors and aliases begin with.
func mayHaveAliases(text []byte) bool {
	return bytes.IndexByte(text, '&') >= 0 && bytes.IndexByte(text, '*') >= 0
}

// A converter converts nodes to values.
type converter struct {
	tags     *tagFinder
	repeated []yamltext.RepeatedKey
	odd      int // numbers that Kubernetes' library has decoded
}

// maxOdd limits the numbers that the library decodes one by one: each costs as much as a short document.
const maxOdd = 1000

// convert returns the value of a node, and whether the node is ordinary.
func (c *converter) convert(node *yaml3.Node) (value any, ordinary bool) {
	if node.Anchor != "" || c.tags.isTagged(node) {
		return nil, false
	}
	switch node.Kind {
	case yaml3.ScalarNode:
		return c.scalar(node)
	case yaml3.SequenceNode:
		return c.sequence(node)
	case yaml3.MappingNode:
		return c.mapping(node)
	default:
		return nil, false
	}
}

func (c *converter) sequence(node *yaml3.Node) (any, bool) {
	list := make([]any, len(node.Content))
	for i, item := range node.Content {
		value, ordinary := c.convert(item)
		if !ordinary {
			return nil, false
		}
		list[i] = value
	}
	return list, true
}

func (c *converter) mapping(node *yaml3.Node) (any, bool) {
	fields := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, ordinary := c.key(node.Content[i])
		if !ordinary {
			return nil, false
		}
		value, ordinary := c.convert(node.Content[i+1])
		if !ordinary {
			return nil, false
		}
		if _, isRepeated := fields[key]; isRepeated {
			c.repeated = append(c.repeated,
				yamltext.RepeatedKey{Key: key, Line: node.Content[i].Line, Column: node.Content[i].Column})
		}
		fields[key] = value
	}
	return fields, true
}

func (c *converter) key(node *yaml3.Node) (string, bool) {
	if node.Kind != yaml3.ScalarNode || node.Anchor != "" || c.tags.isTagged(node) {
		return "", false
	}
	value, ordinary := c.scalar(node)
	if !ordinary {
		return "", false
	}
	key, isString := value.(string)
	if !isString || key == "<<" {
		return "", false
	}
	return unique.Make(key).Value(), true // interned: many manifests have the same keys
}

// isQuoted reports whether a scalar is a string by its style.
func isQuoted(node *yaml3.Node) bool {
	const quoted = yaml3.DoubleQuotedStyle | yaml3.SingleQuotedStyle | yaml3.LiteralStyle | yaml3.FoldedStyle
	return node.Style&quoted != 0
}

// scalar returns the value of a scalar by the rules of YAML 1.1.
func (c *converter) scalar(node *yaml3.Node) (any, bool) {
	text := node.Value
	if isQuoted(node) {
		return text, true
	}
	if text == "" {
		return nil, true
	}
	switch first := text[0]; {
	case strings.IndexByte("yYnNtTfFoO~", first) >= 0:
		if value, known := words[text]; known {
			return value, true
		}
		return text, true
	case first == '.' || first == '+' || first == '-' || (first >= '0' && first <= '9'):
		return c.number(text)
	default:
		return text, true
	}
}

// words are the plain words that are not strings.
var words = map[string]any{
	"~": nil, "null": nil, "Null": nil, "NULL": nil,
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true,
	"true": true, "True": true, "TRUE": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false,
	"false": false, "False": false, "FALSE": false, "off": false, "Off": false, "OFF": false,
}

// maxDigits is the number of decimal digits that always fit an int64.
const maxDigits = 18

// number returns the value of a text that looks like a number. Only plain decimal
// integers are decoded here; octals, floats, dates and the like are rare, and
// decoded by Kubernetes' own library.
func (c *converter) number(text string) (any, bool) {
	if isDecimal(text) {
		value, err := strconv.ParseInt(text, 10, 64)
		return value, err == nil
	}
	if strings.ContainsAny(text, " \nmMkKGPsh") {
		return text, true // several words are never a number, and neither is a quantity or duration: 50Mi, 10m, 30s
	}
	if c.odd++; c.odd > maxOdd {
		return nil, false
	}
	var value any
	if err := utilyaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, false
	}
	switch value := value.(type) {
	case int64, float64, string:
		return value, true
	default: // such as "-" alone, which is a list when it stands alone
		return nil, false
	}
}

func isDecimal(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(digits) > maxDigits || (digits[0] == '0' && len(text) > 1) {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// A Document is a document of a file, which may be a manifest.
type Document struct {
	Number int    // number in the file, as in Manifest
	Text   []byte // unchanged text of the file
	Start  int    // offset of the text in the file, in bytes
	Value  any    // value as Kubernetes decodes it; nil if it can't be decoded
}

// Documents decodes the text of a file as Parse does, without rendering templates and substituting images. Empty
// documents are left out. If the text can't be split into documents, Documents fails.
func Documents(text []byte) ([]Document, error) {
	chunks, wrong := split(text)
	if wrong != nil {
		return nil, wrong
	}
	var found []Document
	add := func(c chunk, value any) {
		found = append(found, Document{Number: len(found) + 1, Text: c.text, Start: c.offset, Value: value})
	}
	for _, chunk := range chunks {
		documents, err := chunk.decode()
		for _, d := range documents {
			if d.value != nil {
				add(d.text, d.value)
			}
		}
		if err != nil {
			add(chunk, nil)
		}
	}
	return found, nil
}

// A chunk is the text of one document with its position in the file.
type chunk struct {
	text   []byte
	line   int // line of the file where text begins, from 1
	offset int // byte offset in the file where text begins

	marks int // characters that separate values; see limits.go
}

// fileLine converts a line of the text to a line of the file.
func (c chunk) fileLine(line int) int { return c.line + max(line, 1) - 1 }

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	separator     = []byte("---")
)

// split splits a file at the lines that begin with "---", as Kubernetes does. A
// separator may be followed by blanks and a comment only. The text between two
// separators is a document even if it is empty.
func split(text []byte) ([]chunk, *yamltext.TextError) {
	whole := len(text)
	text = bytes.TrimPrefix(text, byteOrderMark)
	if offset := invalidUTF8(text); offset >= 0 {
		return nil, &yamltext.TextError{
			Line:    1 + bytes.Count(text[:offset], []byte("\n")),
			Message: "this is not UTF-8 text: save the file as UTF-8",
		}
	}
	var chunks []chunk
	line := 1
	for {
		body, marker, rest, found := cutSeparator(text)
		if len(chunks) == maxDocuments {
			return nil, errDocuments
		}
		if len(bytes.TrimSpace(body)) > 0 || found && len(chunks)+line > 1 {
			chunks = append(chunks, chunk{text: body, line: line, offset: whole - len(text), marks: countMarks(body)})
		}
		if !found {
			return chunks, nil
		}
		line += bytes.Count(body, []byte("\n"))
		if extra := bytes.TrimSpace(marker[len(separator):]); len(extra) > 0 && extra[0] != '#' {
			return chunks, &yamltext.TextError{
				Line:    line,
				Message: `only a comment may follow "---": put the rest on the next line`,
			}
		}
		line++
		text = rest
	}
}

// cutSeparator finds the first line that begins with "---".
func cutSeparator(text []byte) (body, marker, rest []byte, found bool) {
	start := 0
	if !bytes.HasPrefix(text, separator) {
		index := bytes.Index(text, []byte("\n---"))
		if index < 0 {
			return text, nil, nil, false
		}
		start = index + 1
	}
	marker, rest, _ = bytes.Cut(text[start:], []byte("\n"))
	return text[:start], marker, rest, true
}

// invalidUTF8 returns the offset of the first invalid UTF-8 of a text, or -1.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	offset := 0
	for offset < len(text) {
		r, size := utf8.DecodeRune(text[offset:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		offset += size
	}
	return offset
}
