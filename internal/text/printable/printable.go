// Package printable escapes text from outside before it is printed: names from manifests and archives, and responses of
// servers. Such a text may have line breaks, which would look like our own output, and escape sequences, which control
// terminals.
//
// The package masks no secrets and quotes nothing: harmless text stays unchanged.
//
// Start with Line; JSON is for texts that machines read, too. Truncate and Shorten make a text shorter, RequestError
// makes the errors of requests comparable, and Count puts numbers into words.
package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
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

// Count returns a number of things, in words that fit one and many.
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

// Few returns the first of some names, and the number of the others.
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

// RequestError returns the error of a request without secrets, and without parts that differ from try to try: the port
// on this side of the connection, and the URL, which may have a password.
func RequestError(err error) error {
	var (
		timeout net.Error
		host    *net.DNSError
		network *net.OpError
		request *url.Error
	)
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing answers there (connection refused)")
	case errors.As(err, &host):
		return fmt.Errorf("there is no host %s", host.Name)
	case errors.As(err, &network):
		return network.Err
	case errors.As(err, &request):
		return request.Err
	default:
		return err
	}
}

// Nearest returns the name nearest to a text, in whatever case, if fewer letters differ than a limit; "" if
// none is.
func Nearest(text string, names []string, limit int) string {
	best := ""
	for _, name := range names {
		if d := EditDistance(strings.ToLower(name), strings.ToLower(text)); d < limit {
			best, limit = name, d
		}
	}
	return best
}

// EditDistance returns the number of letters to change, add or remove for one text to become
// the other. The result is large, and not exact, if the lengths differ much.
func EditDistance(a, b string) int {
	if gap := len(a) - len(b); gap > 8 || gap < -8 {
		return 9
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
