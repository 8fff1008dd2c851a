package look

import (
	"regexp"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
)

// agePattern matches the age in a message, such as "for 3m12s" or "5d ago".
var agePattern = regexp.MustCompile(`\bfor (?:\d{1,6}[smhdy]){1,2}\b|\b(?:\d{1,6}[smhdy]){1,2} ago\b`)

// ageParts matches the numbers of an age.
var ageParts = regexp.MustCompile(`(\d+)([smhdy])`)

// Prose returns a message that was written at a time, with its line breaks. The ages in it become times, which the
// script of the page refreshes: a page may be open for hours without another message.
func Prose(now time.Time, text string) g.Node {
	return linesOf(text, func(line string) g.Node { return proseLine(now, bounded(line)) })
}

func proseLine(now time.Time, text string) g.Node {
	var nodes g.Group
	last := 0
	for _, place := range agePattern.FindAllStringIndex(text, -1) {
		age := time.Duration(0)
		parts := ageParts.FindAllStringSubmatchIndex(text[place[0]:place[1]], -1)
		for _, part := range parts {
			number, _ := strconv.Atoi(text[place[0]+part[2] : place[0]+part[3]])
			age += time.Duration(number) * units[text[place[0]+part[4]]]
		}
		start, end := place[0]+parts[0][0], place[0]+parts[len(parts)-1][1]
		nodes = append(nodes, g.Text(text[last:start]), timeElement(now.Add(-age), text[start:end]))
		last = end
	}
	return append(nodes, g.Text(text[last:]))
}

// units are the units of ages.
var units = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'y': 365 * 24 * time.Hour,
}
