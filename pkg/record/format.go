package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// format is what this program writes, and the newest that it reads. Fields that come
// newly to the top need no newer one: programs that don't know them keep them.
const format = 1

// maxSize is what a ConfigMap may hold.
const maxSize = 1 << 20

// maxShown is how much is quoted of a record that can't be read.
const maxShown = 300

// A document is a record as it is written.
type document struct {
	Format int `json:"format"`
	Record
}

// A place is where a record is written.
type place struct{ kind, namespace, name, key string }

func (p place) String() string {
	return fmt.Sprintf("%s %s/%s, %s", p.kind, p.namespace, p.name, p.key)
}

// decode reads the record of a release.
func decode(config *corev1.ConfigMap, release string) (*Record, error) {
	at := place{"ConfigMap", config.Namespace, config.Name, "key " + key}
	text, found := config.Data[key]
	if !found {
		return nil, at.broken(": there is none")
	}
	r, err := decodeText(text, release, at)
	if err == nil {
		r.Fingerprints = config.BinaryData[fingerprintsKey]
	}
	return r, err
}

// broken is the error of a record that can't be read.
func (p place) broken(what string) error {
	if what = printable.Line(what); len(what) > maxShown {
		what = strings.ToValidUTF8(what[:maxShown], "") + "…"
	}
	lifts := "restore it from a backup, or delete the ConfigMap; the next apply then knows only what its Lease has a copy of"
	if p.kind != "ConfigMap" {
		lifts = "remove it; the next apply is then taken for an update of a release that nothing is known of"
	}
	return &reason.Error{Reason: ReasonUnreadable, Message: fmt.Sprintf("%s%s: %s", p, what, lifts)}
}

// decodeText reads a record that is written somewhere.
func decodeText(text, release string, at place) (*Record, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return nil, at.broken(placed(text, err))
	}
	if head.Format > format {
		return nil, &reason.Error{Reason: ReasonUnreadable, Message: fmt.Sprintf(
			"%s: a newer runlevel wrote it, in format %d, and this one reads up to %d: use that one", at, head.Format, format)}
	}
	var read document
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return nil, at.broken(placed(text, err))
	}
	if wrong := read.wrong(release); wrong != "" {
		return nil, at.broken(": " + wrong)
	}
	return &read.Record, nil
}

// wrong says what is wrong with a record that could be read; "" if nothing is.
func (d *document) wrong(release string) string {
	if d.Format < 1 {
		return fmt.Sprintf("format is %d, want %d", d.Format, format)
	}
	if d.Release != release {
		return fmt.Sprintf("release is %q, want %q", d.Release, release)
	}
	for i, e := range d.History {
		if e.State != Partial && e.State != Completed {
			return fmt.Sprintf("history[%d].state is %q, want %s or %s", i, e.State, Partial, Completed)
		}
	}
	return ""
}

// placed says where JSON is wrong, and how.
func placed(text string, err error) string {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	var untimely *time.ParseError
	switch {
	case errors.As(err, &syntax):
		return position(text, syntax.Offset) + err.Error()
	case errors.As(err, &mistyped):
		what := cmp.Or(strings.TrimPrefix(mistyped.Field, "Record."), "the record")
		kind, _, _ := strings.Cut(mistyped.Value, " ")
		return position(text, mistyped.Offset) + fmt.Sprintf("%s can't be of type %s", what, kind)
	case errors.As(err, &untimely): // which does not know where it is
		at := strings.Index(text, strconv.Quote(untimely.Value))
		return position(text, int64(at)+1) + fmt.Sprintf("%q is no time, such as %s", untimely.Value, time.RFC3339[:19]+"Z")
	default:
		return ": " + err.Error()
	}
}

// position is the line and column of the character before an offset.
func position(text string, offset int64) string {
	before := text[:max(0, min(int(offset)-1, len(text)))]
	line, column := strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")
	return fmt.Sprintf(", line %d, column %d: ", line, column)
}

// room is how much of a ConfigMap nobody else has taken.
func room(config *corev1.ConfigMap) int {
	room := maxSize
	for name, value := range config.Data {
		if name != key {
			room -= len(value)
		}
	}
	for name, value := range config.BinaryData {
		if name != fingerprintsKey {
			room -= len(value)
		}
	}
	return room
}

// encode writes a record for a ConfigMap, with the fields that are in there already and
// that this program does not know. If it is too big, or leaves no room for fingerprints, it
// goes without durations; if that is not enough, without how the run stands, and then old entries
// lose their tombstones and failures, the oldest ones first, as many as must.
func encode(r *Record, config *corev1.ConfigMap) (string, error) {
	room, unknown := room(config), unknownFields(config.Data[key])
	text, err := marshal(r, unknown)
	if err == nil && len(r.Durations) > 0 && len(text)+len(r.Fingerprints) > room {
		lean := *r
		lean.Durations = nil
		r = &lean
		text, err = marshal(r, unknown)
	}
	if err != nil || len(text) <= room {
		return text, err
	}
	lean := *r
	lean.Run = nil
	if text, err = marshal(&lean, unknown); err != nil || len(text) <= room {
		return text, err
	}
	return shrink(&lean, unknown, room)
}

// shrink writes a record with as few changes as make it fit.
func shrink(r *Record, unknown map[string]json.RawMessage, room int) (string, error) {
	least, err := marshal(r.without(len(r.History)), unknown)
	if err != nil {
		return "", err
	}
	if len(least) > room {
		return "", &reason.Error{Reason: ReasonTooBig, Message: fmt.Sprintf(
			"record of release %q: it needs %d bytes, and a ConfigMap has room for %d: %s",
			r.Release, len(least), room, r.counts())}
	}
	shed := sort.Search(len(r.History), func(shed int) bool {
		text, _ := marshal(r.without(shed), unknown) // it could be written a moment ago
		return len(text) <= room
	})
	return marshal(r.without(shed), unknown)
}

// counts says how much of what there is.
func (r *Record) counts() string {
	return strings.Join([]string{
		printable.Count(len(r.Kinds), "kind"), printable.Count(len(r.Jobs), "finished job"),
		printable.Count(len(r.Tombstones), "unfinished delete"), printable.Count(len(r.Waits), "wait"),
	}, ", ")
}

// without is the record whose oldest entries have no tombstones and, but for the newest, no failures.
func (r *Record) without(shed int) *Record {
	lean := *r
	lean.History = slices.Clone(r.History)
	for i := len(lean.History) - shed; i < len(lean.History); i++ {
		lean.History[i].Tombstones = nil
		if end := lean.History[i].End; end != nil && i > 0 {
			short := *end
			short.Failures, short.More = nil, end.More+len(end.Failures)
			lean.History[i].End = &short
		}
	}
	return &lean
}

// marshal writes one field or element per line, so that people can read it and compare.
func marshal(r *Record, unknown map[string]json.RawMessage) (string, error) {
	text, err := json.MarshalIndent(document{Format: format, Record: *r}, "", " ")
	if err != nil || len(unknown) == 0 {
		return string(text), err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return "", err
	}
	maps.Copy(all, unknown)
	text, err = json.MarshalIndent(all, "", " ")
	return string(text), err
}

// unknownFields are those at the top that this program does not know.
// Names are compared as package json does, whatever their case.
func unknownFields(text string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil // there is no record yet
	}
	known := reflect.TypeFor[Record]()
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		_, isKnown := known.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
		return isKnown || strings.EqualFold("format", name)
	})
	return all
}
