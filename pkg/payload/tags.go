package payload

import (
	"bytes"

	yaml3 "go.yaml.in/yaml/v3"
)

// A tagFinder finds whether a node has a tag, such as !!str. yaml/v3
// drops some tags, so it reads the text where the node begins. It is nil for a text
// that has no exclamation mark, and so no tag.
type tagFinder struct {
	lines [][]byte
	isOdd bool // lines may end with a carriage return alone

	// The line of the last call: a line may have many nodes.
	number     int
	isASCII    bool
	characters []rune // set for a line with non-ASCII characters: columns are counted in characters
}

func newTagFinder(text []byte) *tagFinder {
	if bytes.IndexByte(text, '!') < 0 {
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	return &tagFinder{lines: lines, isOdd: bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n"))}
}

// isTagged reports whether a node begins with a tag. It returns true if that
// can't be known.
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
