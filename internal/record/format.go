package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// format is the format that this program writes, and the newest that it reads. New
// fields at the top need no newer format: programs that don't know them keep them.
const format = 1

// maxSize is the maximum size of a ConfigMap.
const maxSize = 1 << 20

// maxShown bounds how much of a record that can't be read is quoted.
const maxShown = 300

// A document is a record as it is written.
type document struct {
	Format int `json:"format"`
	Record
}

// A header is the fields of all formats.
type header struct {
	Format int `json:"format"`
}

// A recordLocation is the object and the key of a record.
type recordLocation struct{ kind, namespace, name, key string }

func (l recordLocation) String() string {
	return fmt.Sprintf("%s %s/%s, %s", l.kind, l.namespace, l.name, l.key)
}

// decode reads the record of a release.
func decode(config *corev1.ConfigMap, release string) (*Record, error) {
	location := recordLocation{"ConfigMap", config.Namespace, config.Name, "key " + key}
	text, found := config.Data[key]
	if !found {
		return nil, location.broken(": there is none")
	}
	r, err := decodeText(text, release, location)
	if err == nil {
		r.Fingerprints = config.BinaryData[fingerprintsKey]
	}
	return r, err
}

// broken returns the error of a record that can't be read.
func (l recordLocation) broken(what string) error {
	what = printable.Truncate(printable.Line(what), maxShown)
	resolution := "restore it from a backup, or delete the ConfigMap; the next apply then uses the copy in the " +
		"Lease, which lacks most of the history"
	if l.kind != "ConfigMap" {
		resolution = "remove it; the next apply then updates the release without a record of earlier applies"
	}
	return &reason.Error{Reason: ReasonUnreadable, Message: fmt.Sprintf("%s%s: %s", l, what, resolution)}
}

// decodeText reads the text of a record.
func decodeText(text, release string, location recordLocation) (*Record, error) {
	var head header
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return nil, location.broken(": " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if head.Format > format {
		return nil, &reason.Error{Reason: ReasonUnreadable, Message: fmt.Sprintf(
			"%s: a newer runlevel wrote it, in format %d, and this one reads up to %d: use that one", location,
			head.Format,
			format)}
	}
	var read document
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return nil, location.broken(": " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if wrong := read.wrong(release); wrong != "" {
		return nil, location.broken(": " + wrong)
	}
	number(&read.Record)
	return &read.Record, nil
}

// wrong returns the error in a decoded record; "" if the record is valid.
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

// room returns how many bytes of a ConfigMap are left.
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

// reductions remove fields, one after the other, until a record fits into a ConfigMap.
var reductions = []func(*Record){
	func(r *Record) { r.Durations, r.Repairs = nil, nil },
	func(r *Record) { r.Run = nil },
	func(r *Record) { r.Fingerprints = nil },
	func(r *Record) { r.History = shortened(r.History, 10) },
	func(r *Record) { r.History = shortened(r.History, 0) },
}

// fit encodes a record, with as many reductions as it needs to fit into some room with its fingerprints.
func fit(r Record, room int, reductions []func(*Record), encode func(Record) (string, error)) (Record, string, error) {
	text, err := encode(r)
	for _, reduce := range reductions {
		if err != nil || len(text)+len(r.Fingerprints) <= room {
			break
		}
		reduce(&r)
		text, err = encode(r)
	}
	return r, text, err
}

// encode returns the text and the fingerprints of a record for a ConfigMap, with those fields of the ConfigMap's
// record that this program does not know.
func encode(r *Record, config *corev1.ConfigMap) (string, []byte, error) {
	room, unknown := room(config), unknownFields(config.Data[key])
	lean, text, err := fit(*r, room, reductions, func(r Record) (string, error) { return marshal(r, unknown) })
	if err == nil && len(text) > room {
		err = &reason.Error{Reason: ReasonTooBig, Message: fmt.Sprintf(
			"record of release %q: it needs %d bytes, and a ConfigMap has room for %d: %s",
			r.Release, len(text), room, r.counts())}
	}
	return text, lean.Fingerprints, err
}

// shortened returns a history in which only the first entries have tombstones, and they and the newest have failures.
func shortened(history []HistoryEntry, whole int) []HistoryEntry {
	history = slices.Clone(history)
	for i := min(whole, len(history)); i < len(history); i++ {
		history[i].Tombstones = nil
		if end := history[i].End; end != nil && i > 0 {
			short := *end
			short.Failures, short.More = nil, end.More+len(end.Failures)
			history[i].End = &short
		}
	}
	return history
}

// counts returns how many entries of each kind a record has.
func (r *Record) counts() string {
	return strings.Join([]string{
		printable.Count(len(r.Kinds), "kind"), printable.Count(len(r.Jobs), "finished job"),
		printable.Count(len(r.Tombstones), "unfinished delete"), printable.Count(len(r.Waits), "wait"),
	}, ", ")
}

// marshal writes one field or element per line, so that people can read it and compare.
func marshal(r Record, unknown map[string]json.RawMessage) (string, error) {
	text, err := json.MarshalIndent(document{Format: format, Record: r}, "", " ")
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

// unknownFields returns the fields at the top that this program does not know.
// Names are compared as in package json, ignoring their case.
func unknownFields(text string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil // the ConfigMap has no record yet
	}
	known := reflect.TypeFor[Record]()
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		_, isKnown := known.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
		return isKnown || strings.EqualFold("format", name)
	})
	return all
}
