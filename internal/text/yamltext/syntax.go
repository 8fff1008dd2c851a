package yamltext

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// This file explains syntax errors of YAML and JSON, for people and
// without quoting possible secrets.

var errorLine = regexp.MustCompile(`line (\d+): `)

// ErrorOf returns the error of a YAML library, with the line that its message names.
func ErrorOf(err error) *TextError {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	message = strings.TrimPrefix(message, "yaml: ")
	message, _, _ = strings.Cut(message, "\n")
	found := errorLine.FindStringSubmatch(message)
	if found == nil {
		return &TextError{Message: message}
	}
	line, _ := strconv.Atoi(found[1])
	return &TextError{Line: line, Message: strings.Replace(message, found[0], "", 1)}
}

// Explain returns the error of a YAML library for a text, in words that do not quote the text and that name the
// correction, if one is known.
func Explain(err error, text []byte) *TextError {
	syntax := ErrorOf(err)
	syntax.redact(text)
	syntax.explain(text)
	if isIndentedByTab(text, syntax.Line) {
		syntax.Message = "this line begins with a tab: indent it with blanks"
	}
	if hidden := bytes.IndexFunc(text, isControl); syntax.Line == 0 && hidden >= 0 {
		syntax.Line = LineAt(text, int64(hidden))
	}
	return syntax
}

// The messages of YAML libraries that quote the text, which may be a secret's value.
var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	nestedAnchor  = regexp.MustCompile(`^anchor '.*' value contains itself$`)
	invalidKey    = regexp.MustCompile(`^invalid map key: `)
	unusualKey    = regexp.MustCompile(`^unsupported map key of type: `)
	// which is cut at a line break
	wrongTag   = regexp.MustCompile("^cannot decode !!str `(?:.*` as a (!![a-z]+)$)?")
	quotedText = regexp.MustCompile("[`\"].*")
)

// redact replaces a message that quotes the text.
func (e *TextError) redact(text []byte) {
	find := func(mark string) {
		if offset := bytes.Index(text, []byte(mark)); offset >= 0 {
			e.Line = LineAt(text, int64(offset))
		}
	}
	if found := unknownAnchor.FindStringSubmatch(e.Message); found != nil {
		e.Message = `a value that begins with "*" stands for an anchor, and there is none of this name: put it in quotes if it is a text`
		find("*" + found[1])
		return
	}
	if found := wrongTag.FindStringSubmatch(e.Message); found != nil {
		tag := cmp.Or(found[1], "!!TYPE")
		e.Message = fmt.Sprintf(
			"a value has the tag %s, and is not of that type: remove the tag, or write another value", tag,
		)
		find(strings.TrimSuffix(tag, "TYPE"))
		return
	}
	switch {
	case invalidKey.MatchString(e.Message):
		e.Message = "a key is a mapping or a list, and must be a text: put braces in quotes if they are one"
		find("{{")
	case unusualKey.MatchString(e.Message):
		e.Message = "a key is empty or null, and must be a text: put it in quotes"
	case nestedAnchor.MatchString(e.Message):
		e.Message = `a value that begins with "*" stands for an anchor that it is itself a part of: write the value instead`
	default:
		e.Message = quotedText.ReplaceAllString(e.Message, "…")
	}
}

// syntaxAdvice has a message with the correction for each message of YAML libraries.
var syntaxAdvice = map[string]string{
	"could not find expected ':'":      `this line or the one above has no ":" behind its key: write KEY: VALUE`,
	"did not find expected ',' or '}'": `a "{" is not closed, or a comma is missing behind it: add it`,
	"did not find expected ',' or ']'": `a "[" is not closed, or a comma is missing behind it: add it`,
	"did not find expected key": "this line or one below is not indented as its neighbours, or " +
		"has more behind its value: indent it alike, or put the value in quotes",
	"did not find expected node content":              `a value is missing, or a "[" or "{" is not closed: add it`,
	"found a tab character that violates indentation": "this line or the next begins with a tab: indent it with blanks",
	"found character that cannot start any token": "a value begins with a character that YAML reserves, such as " +
		"@, % or a backquote: put it in quotes",
	"found unexpected end of stream":                 "a quotation mark is not closed: add it",
	"mapping values are not allowed in this context": `a value has ": " in it, or this line is indented too far: put the value in quotes, or indent it as its neighbours`,
}

var conflictMarker = regexp.MustCompile(`(?m)^<{7}( |$)`)

// explain replaces the message by one with the correction, if one is known.
func (e *TextError) explain(text []byte) {
	if found := conflictMarker.FindIndex(text); found != nil {
		e.Line, e.Message = LineAt(text, int64(found[0])),
			`a merge conflict begins here: resolve it, and remove its markers "<<<<<<<", "=======" and ">>>>>>>"`
		return
	}
	e.Message = cmp.Or(syntaxAdvice[e.Message], e.Message)
}

// isIndentedByTab reports whether the indentation of a line has a tab.
func isIndentedByTab(text []byte, line int) bool {
	lines := bytes.Split(text, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	offset := bytes.IndexFunc(lines[line-1], func(r rune) bool { return !unicode.IsSpace(r) })
	return bytes.IndexByte(lines[line-1][:max(offset, 0)], '\t') >= 0
}

// isControl reports whether YAML does not allow a character.
func isControl(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' && r != 0x85
}

// LineAt returns the line of the first character at an offset or after it which is not blank.
func LineAt(text []byte, offset int64) int {
	offset = max(0, min(offset, int64(len(text))))
	rest := text[offset:]
	offset += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n")))
	if int(offset) == len(text) {
		offset = int64(len(bytes.TrimRight(text, " \t\r\n")))
	}
	return 1 + bytes.Count(text[:offset], []byte("\n"))
}
