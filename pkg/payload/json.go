package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// decodeJSON reads a stream of JSON documents, which a file may have one after
// the other without a separator. If it fails, the documents before the error
// are returned, too. They may be followed by comments, and a single JSON document by one
// in YAML: Kubernetes' decoder allows that.
func decodeJSON(text []byte) ([]decodedDocument, error) {
	var found []decodedDocument
	line, counted := 1, 0 // lines are counted up to here
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		start := int(decoder.InputOffset())
		start += len(text[start:]) - len(bytes.TrimLeft(text[start:], " \t\r\n"))
		line += bytes.Count(text[counted:start], []byte("\n"))
		counted = start
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if err != nil {
			if errors.Is(err, io.EOF) || len(found) > 0 && isComment(text[start:]) {
				return found, nil
			}
			wrong := jsonError(text, err, decoder.InputOffset())
			if len(found) != 1 {
				return found, wrong
			}
			last, err := chunk{text: text[start:], marks: countMarks(text[start:])}.decodeYAML()
			if err != nil {
				return found, wrong
			}
			last.text = chunk{text: text[start:], line: line, offset: start}
			return append(found, last), nil
		}
		if len(found) == maxDocuments {
			return found, errDocuments
		}
		d, err := decodeOneJSON(raw)
		if err != nil {
			return found, &yamltext.TextError{Line: line, Message: err.Error()}
		}
		d.text = chunk{text: raw, line: line, offset: start}
		found = append(found, d)
	}
}

// decodeOneJSON reads one document.
func decodeOneJSON(text []byte) (decodedDocument, error) {
	if err := checkText(text, countMarks(text)); err != nil {
		return decodedDocument{}, err
	}
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return decodedDocument{}, err
	}
	size, err := measureValue(value)
	return decodedDocument{value: value, size: size, line: 1}, err
}

// isComment reports whether a text has nothing but comments.
func isComment(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func jsonError(text []byte, err error, offset int64) *yamltext.TextError {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = syntax.Offset - 1 // Offset is behind the character
	}
	message := strings.TrimPrefix(err.Error(), "json: ")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		offset, message = int64(len(text)), "the JSON ends too early"
	}
	return &yamltext.TextError{Line: yamltext.LineAt(text, offset), Message: message}
}
