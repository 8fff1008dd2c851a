// Package printable makes text from outside fit to be shown: names out of
// manifests and archives, answers of servers. It may hold line breaks, which would
// look like output of our own, and escape sequences, which do things to terminals.
//
// It masks no secrets and quotes nothing: harmless text stays unchanged.
//
// Line is the call to start from; JSON is for texts that machines read, too. Truncate and Shorten make a text shorter,
// RequestError makes the errors of requests comparable, and Count puts numbers into words.
package printable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// Line returns a text in one line, without invisible characters: such
// characters are written as Go writes them in quotes, \n for example.
func Line(text string) string {
	if !strings.ContainsFunc(text, isHidden) && !strings.ContainsRune(text, unicode.ReplacementChar) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if isHidden(r) {
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Error returns an error with its text in one line, as Line returns it.
func Error(err error) error { return lineError{err} }

type lineError struct{ error }

func (e lineError) Error() string { return Line(strings.TrimSpace(e.error.Error())) }
func (e lineError) Unwrap() error { return e.error }

func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// JSON returns a JSON text with what does things to terminals, or to how lines read, written as \u202e for
// example. The value is the same.
func JSON(text []byte) []byte {
	if IsHarmless(text) {
		return text
	}
	var out []byte
	for _, r := range string(text) { // JSON has such characters only in strings
		if isHarmful(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// IndentedJSON returns a value as JSON on several lines.
func IndentedJSON(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(JSON(text), '\n'), err
}

// YAML returns a value as YAML; or as JSON, which is YAML as well, where YAML would contain control characters.
func YAML(value any) ([]byte, error) {
	text, err := yaml.Marshal(value)
	if err == nil && !IsHarmless(text) {
		return IndentedJSON(value)
	}
	return text, err
}

// Age returns the time between two moments as text, at least 0s.
func Age(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }

// IsHarmless reports whether a text of several lines can be shown as it is.
func IsHarmless(text []byte) bool { return !bytes.ContainsFunc(text, isHarmful) }

// isHarmful is true for control characters other than tabs and line breaks, for those that change the
// direction of text, and for line breaks that few programs know.
func isHarmful(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Count is a number of things, in words that fit one and many.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Truncate returns a text of at most maxBytes bytes. A longer text is cut before a character, and ends in dots.
func Truncate(text string, maxBytes int) string {
	const dots = "…"
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:max(0, maxBytes-len(dots))], "") + dots
}

// Shorten returns a text of at most a number of characters. A longer text is cut, and ends in dots.
func Shorten(text string, characters int) string {
	runes := []rune(text)
	if len(runes) <= characters {
		return text
	}
	return string(runes[:characters-1]) + "…"
}

// Few returns the first of some names, and how many more there are.
func Few(names []string, most int) string {
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ShellWord returns a word of a command line, quoted for a shell if it has to be.
func ShellWord(word string) string {
	if !strings.ContainsAny(word, " \t\n\"'\\$&;|<>()*?`#~!") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
