package payload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// Places has the positions of a manifest's fields in its file.
type Places struct {
	*yamltext.FieldPlaces
	text chunk
}

// newPlaces parses a text once more, which is only done to report a problem.
func newPlaces(text chunk) *Places {
	root, err := yamltext.Parse(text.text)
	if err != nil {
		root = nil
	}
	return &Places{FieldPlaces: yamltext.NewPlaces(root), text: text}
}

// At returns the line and column of a field in the file: see yamltext.FieldPlaces.
func (p *Places) At(path ...string) (line, column int) {
	line, column = p.FieldPlaces.At(path...)
	return p.text.fileLine(line), column
}

// AreComments returns for offsets of # in a document's text whether a comment
// begins there: text behind such a # is in no value. The document is decoded
// twice, however many offsets there are.
func AreComments(text []byte, offsets []int) []bool {
	found := make([]bool, len(offsets))
	if _, err := decode(text); err != nil {
		return found
	}
	mark := "runlevel-mark"
	for bytes.Contains(text, []byte(mark)) {
		mark += "-"
	}
	var marked bytes.Buffer
	last := 0
	for i, offset := range offsets {
		marked.Write(text[last : offset+1])
		fmt.Fprintf(&marked, "%s%d;", mark, i)
		last = offset + 1
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
