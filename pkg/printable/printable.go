// Package printable makes text that nobody vouches for fit to be shown: names out of
// manifests and archives, answers of servers. It may hold line breaks, which would
// look like output of our own, and escape sequences, which do things to terminals.
//
// It masks no secrets and quotes nothing: text that is harmless stays as it is.
//
// Line is the call to start from; Count puts numbers into words.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Line returns a text in one line, without anything that is not shown: such
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

func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// Count is a number of things, in words that fit one and many.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
