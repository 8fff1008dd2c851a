package fix

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/runlevel/runlevel/pkg/payload"
)

// An edit puts a text into the place of another.
type edit struct {
	start, end int // in bytes
	with       string
}

// apply makes all edits, none of which may reach into another.
func apply(text []byte, edits []edit) []byte {
	edits = slices.SortedFunc(slices.Values(edits), func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(text[last:e.start])
		out.WriteString(e.with)
		last = e.end
	}
	out.Write(text[last:])
	return out.Bytes()
}

// A fixer fixes one file.
type fixer struct {
	text  []byte
	fixed []Fixed
	left  []Unfixed
}

// byHand is what to do about a text where an edit would do more than was meant.
const byHand = "an edit here would change something else too, because of an anchor, a merge key or a repeated key: fix it by hand"

// fix makes the fixes that are requested.
func (m *fixer) fix(requests []Request) {
	documents, err := payload.Documents(m.text)
	if err != nil {
		m.left = append(m.left, Unfixed{Why: err.Error()})
		return
	}
	m.fixDocuments(documents, requests)
	if slices.ContainsFunc(requests, func(r Request) bool { return r.Rule == FinalNewline }) {
		m.endLine()
	}
}

// fixDocuments fixes values in documents.
func (m *fixer) fixDocuments(documents []payload.Document, requests []Request) {
	asked := map[int][]string{}
	for _, r := range requests {
		if r.Document > 0 && r.Document <= len(documents) && !slices.Contains(asked[r.Document], r.Rule) {
			asked[r.Document] = append(asked[r.Document], r.Rule)
		}
	}
	byNumber := map[int][]correction{}
	for _, number := range slices.Sorted(maps.Keys(asked)) {
		changed, lost := corrections(documents[number-1], asked[number])
		for _, at := range lost {
			m.left = append(m.left, Unfixed{Line: m.line(documents[number-1], at), Why: byHand})
		}
		byNumber[number] = changed
	}
	m.correct(documents, byNumber)
}

// line is where a place in a document stands.
func (m *fixer) line(d payload.Document, at int) int {
	return 1 + bytes.Count(m.text[:d.Start+at], []byte("\n"))
}

// correct makes corrections of documents, which are given by their numbers.
func (m *fixer) correct(documents []payload.Document, byNumber map[int][]correction) {
	var edits []edit
	var fixed []Fixed
	want := slices.Clone(documents)
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		d, changed := documents[number-1], byNumber[number]
		value, ok := verify(d, changed)
		if !ok {
			m.left = append(m.left, Unfixed{Line: m.line(d, changed[0].start), Why: byHand})
			continue
		}
		want[number-1].Value = value
		for _, c := range changed {
			edits = append(edits, edit{d.Start + c.start, d.Start + c.end, c.with})
			if c.what != "" {
				fixed = append(fixed, Fixed{Rule: c.rule, Line: m.line(d, c.start), What: c.what})
			}
		}
	}
	if len(edits) == 0 {
		return
	}
	after := apply(m.text, edits)
	if !reads(after, want) {
		m.left = append(m.left, Unfixed{Why: byHand})
		return
	}
	m.text, m.fixed = after, append(m.fixed, fixed...)
}

// reads says whether a text has documents of these values. What can't be read must stand
// there as it did.
func reads(text []byte, want []payload.Document) bool {
	documents, err := payload.Documents(text)
	return err == nil && slices.EqualFunc(documents, want, func(d, w payload.Document) bool {
		if w.Value == nil {
			return bytes.Equal(d.Text, w.Text) && d.Value == nil
		}
		return reflect.DeepEqual(d.Value, w.Value)
	})
}

// endLine ends the last line as others end, if that is no part of a value.
func (m *fixer) endLine() {
	if len(m.text) == 0 || bytes.HasSuffix(m.text, []byte("\n")) {
		return
	}
	documents, err := payload.Documents(m.text)
	line := 1 + bytes.Count(m.text, []byte("\n"))
	after := append(slices.Clone(m.text), lineBreak(m.text)...)
	if err != nil || !isWhole(after, documents) {
		m.left = append(m.left, Unfixed{Line: line, Why: `a line break at the end would become part of a text: write "|-" or ">-" where the text begins, and end the line`})
		return
	}
	m.text = after
	m.fixed = append(m.fixed, Fixed{Rule: FinalNewline, Line: line, What: "the last line ends with a line break now"})
}

// isWhole says whether a text has these documents, and all of them can be read: of one
// that can't, the effect of a line break is unknown.
func isWhole(text []byte, documents []payload.Document) bool {
	isUnread := func(d payload.Document) bool { return d.Value == nil }
	return !slices.ContainsFunc(documents, isUnread) && reads(text, documents)
}

// lineBreak is how the lines of a text end.
func lineBreak(text []byte) string {
	if at := bytes.LastIndexByte(text, '\n'); at > 0 && text[at-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// A correction is an edit of a document's text and what it does to its value.
type correction struct {
	edit
	rule   string
	what   string   // for people; "" if another correction says it
	path   []string // to what is changed
	key    string   // what the last step of the path is called then, if that is changed
	value  any      // what stands there then
	delete bool     // whether it may make a tombstone
}

// verify makes corrections, and says what the document then is; not if anything else
// would be different, or an object would be deleted that was not to be.
func verify(d payload.Document, corrections []correction) (any, bool) {
	if len(corrections) == 0 {
		return d.Value, true
	}
	want := d.Value
	mayDelete := isTombstone(d.Value) || saysTrue(deleteValue(d.Value))
	edits := make([]edit, len(corrections))
	for i, c := range corrections {
		want = with(want, c)
		edits[i] = c.edit
		mayDelete = mayDelete || c.delete
	}
	text := apply(d.Text, edits)
	if !reads(text, []payload.Document{{Value: want}}) {
		return nil, false
	}
	return want, mayDelete || !isTombstone(want)
}

// with is a value after a correction. What it has in common with the value before is not
// copied.
func with(value any, c correction) any {
	fields, _ := value.(map[string]any)
	changed := maps.Clone(fields)
	step := c.path[0]
	switch {
	case changed == nil:
		return nil // which no document is that can be read
	case len(c.path) > 1:
		c.path = c.path[1:]
		changed[step] = with(fields[step], c)
	default:
		delete(changed, step)
		changed[cmp.Or(c.key, step)] = c.value
	}
	return changed
}
