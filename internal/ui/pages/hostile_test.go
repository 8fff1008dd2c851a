package pages

import (
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// hostile is a text of an attacker who may edit the record of a release, or an object: HTML, a script, an attribute,
// text from right to left, an escape sequence of terminals, and a megabyte.
var hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>` + "\u202e\x1b[31m\x00 for 999999y ago " +
	strings.Repeat("a", 1<<20)

// fill sets all texts in a value to a text, and makes slices and maps of several elements.
func fill(v reflect.Value, text string, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		if depth < 8 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), text, depth+1)
		}
	case reflect.Slice:
		if depth < 8 {
			v.Set(reflect.MakeSlice(v.Type(), 14, 14))
			for i := range v.Len() {
				fill(v.Index(i), text, depth+1)
			}
		}
	case reflect.Struct:
		if id, isID := v.Addr().Interface().(*kinds.ID); isID {
			name := text[:min(len(text), 2000)]
			*id = kinds.ID{Group: name, Kind: name, Namespace: name, Name: name}
			return
		}
		if _, isTime := v.Addr().Interface().(*time.Time); isTime {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), text, depth+1)
			}
		}
	}
}

func TestHostileTextsAreShownAsTextAndAreBounded(t *testing.T) {
	status := &state.Status{}
	fill(reflect.ValueOf(status).Elem(), hostile, 0)
	states := []why.ObjectState{why.Blocked, why.Changed, why.NotReady, why.Terminating, why.Absent}
	for i, a := range status.Objects {
		a.State = states[i%len(states)]
		a.Object.Name = string(rune('a'+i)) + a.Object.Name // else its delete is pending
	}
	v := releaseView{
		Release: &live.Release{Namespace: hostile, Status: status}, site: &Site{}, events: status.Events,
		contested: map[kinds.ID]state.Event{status.Repairs.Latest[0].ID: status.Events[0]},
	}
	page := look.Page{Title: "Release shop", State: v.announcement(), Sections: v.sections(url.Values{})}
	if got := len(page.Sections); got < 13 {
		t.Errorf("%d sections are tried, want all", got)
	}
	rendered, err := page.Render()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := rendered.Serve(&out, "/events", time.Now()); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, unwanted := range []string{"<script>alert", "<img", "\u202e", "\x1b", "\x00"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("the page has %q", unwanted)
		}
	}
	for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(text, -1) {
		if rest := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tag, ""); strings.Contains(rest, "onerror") {
			t.Errorf("a tag has an event handler: %.200s", tag)
		}
	}
	if !strings.Contains(text, "&lt;script&gt;alert(1)") {
		t.Error("the text itself is not shown")
	}
	if got := len(text) >> 20; got > 6 {
		t.Errorf("the page has %d MB", got)
	}
}
