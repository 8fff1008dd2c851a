package printable

import "strings"

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

// EditDistance returns how many letters have to be changed, added or left out to make one text
// of another. It is large, and not exact, where the lengths differ much.
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
