package payload

import (
	"bytes"
	"unicode/utf8"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

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
