package automatic

import "time"

// Next returns the beginning and the end of the open window, or of the next one.
func Next(windows []Window, now time.Time) (begin, end time.Time) {
	_, begin, end = next(windows, now)
	return begin, end
}
