package payload

import (
	"bytes"

	yaml3 "go.yaml.in/yaml/v3"
)

// A tagFinder tells whether a node is written with a tag, such as !!str. yaml/v3
// forgets some of them, so it looks where the node begins. It is nil for a text
// that has no exclamation mark, and so no tag.
type tagFinder struct {
	lines [][]byte
	isOdd bool // lines may end with a carriage return alone

	// The line that was looked at last: a line may have many nodes.
	number     int
	isASCII    bool
	characters []rune // of a line that is not ASCII: columns are counted in characters
}

func newTagFinder(text []byte) *tagFinder {
	if bytes.IndexByte(text, '!') < 0 {
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	return &tagFinder{lines: lines, isOdd: bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n"))}
}

// isTagged says whether a tag stands where a node begins. It says so, too, where it
// can't know.
func (f *tagFinder) isTagged(node *yaml3.Node) bool {
	if f == nil {
		return false
	}
	if f.isOdd || node.Line < 1 || node.Line > len(f.lines) || node.Column < 1 {
		return true
	}
	line, column := f.lines[node.Line-1], node.Column-1
	if f.number != node.Line {
		f.number, f.isASCII = node.Line, isASCII(line)
		if !f.isASCII {
			f.characters = bytes.Runes(line)
		}
	}
	if f.isASCII {
		return column > len(line) || column < len(line) && line[column] == '!'
	}
	return column > len(f.characters) || column < len(f.characters) && f.characters[column] == '!'
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
