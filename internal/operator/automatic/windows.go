package automatic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Window is a time of each week in which automatic updates may begin.
type Window struct {
	text       string // as it was written
	days       [7]bool
	begin, end int // minutes since midnight; the end is on the next day if it has more than a day
	zone       *time.Location
}

const day = 24 * 60 // minutes

var dayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// ParseWindows reads windows, such as "Sat,Sun 02:00-06:00 Europe/Berlin; Mon-Fri 22:00-04:00".
func ParseWindows(text string) ([]Window, error) {
	var windows []Window
	for part := range strings.SplitSeq(text, ";") {
		w, err := parseWindow(strings.Fields(part))
		if err != nil {
			part = printable.Line(printable.Truncate(strings.TrimSpace(part), 100))
			return nil, fmt.Errorf("%q: %w: write windows such as Sat,Sun 02:00-06:00 Europe/Berlin", part, err)
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// parseWindow reads the days, the hours and the time zone of a window. Without a zone, it is in UTC.
func parseWindow(words []string) (w Window, err error) {
	if len(words) != 2 && len(words) != 3 {
		return w, errors.New("days, hours and time zone expected")
	}
	w.text, w.zone = strings.Join(words, " "), time.UTC
	if err := w.parseDays(words[0]); err != nil {
		return w, err
	}
	begin, end, _ := strings.Cut(words[1], "-")
	var isBegin, isEnd bool
	w.begin, isBegin = parseTime(begin)
	w.end, isEnd = parseTime(end)
	if !isBegin || !isEnd || w.begin == day || w.begin == w.end {
		return w, errors.New("hours have the form 02:00-06:00")
	}
	if w.end < w.begin {
		w.end += day
	}
	if len(words) == 3 {
		if w.zone, err = time.LoadLocation(words[2]); err != nil || words[2] == "Local" {
			return w, errors.New("unknown time zone")
		}
	}
	return w, nil
}

// parseDays reads days, such as "daily", "Sat,Sun" and "Mon-Fri".
func (w *Window) parseDays(text string) error {
	if text == "daily" {
		text = "Sun-Sat"
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, until := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if from < 0 || until < 0 {
			return errors.New("days are daily, or some of Mon,Tue,Wed,Thu,Fri,Sat,Sun")
		}
		for w.days[until] = true; from != until; from = (from + 1) % 7 {
			w.days[from] = true
		}
	}
	return nil
}

// parseTime returns the minutes since midnight of a time, such as 02:00.
func parseTime(text string) (minutes int, isTime bool) {
	if text == "24:00" {
		return day, true
	}
	parsed, err := time.Parse("15:04", text)
	return parsed.Hour()*60 + parsed.Minute(), err == nil && len(text) == len("15:04")
}

// next returns the open window, or the one that opens next, with its beginning and end.
func next(windows []Window, now time.Time) (found Window, begin, end time.Time) {
	for _, w := range windows {
		year, month, today := now.In(w.zone).Date()
		for offset := -1; offset <= 7; offset++ {
			minute := func(m int) time.Time { return time.Date(year, month, today+offset, 0, m, 0, 0, w.zone) }
			first, last := minute(w.begin), minute(w.end)
			isLater := !begin.IsZero() && !first.Before(begin)
			if w.days[minute(day/2).Weekday()] && now.Before(last) && !isLater {
				found, begin, end = w, first, last
			}
		}
	}
	return found, begin, end
}
