package fields_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

func TestRemoveFields(t *testing.T) {
	const pod = `{a: {c: [{name: web, image: x, ports: [{p: 80}, {p: 80, q: UDP}]}, {name: "a,b]=", image: z}, {image: y}]}}`
	for name, test := range map[string]struct{ object, path, want string }{
		"a field":                         {`{a: {b: 1, c: 2}}`, `.a.b`, `{a: {c: 2}}`},
		"the last field":                  {`{a: {b: 1}}`, `.a.b`, `{a: {}}`},
		"a missing field":                 {`{a: {b: 1}}`, `.a.c`, ``},
		"a field of a scalar":             {`{a: 1}`, `.a.b`, ``},
		"a field of nothing":              {`{a: null}`, `.a.b`, ``},
		"null":                            {`{a: null, b: 1}`, `.a`, `{b: 1}`},
		"nothing":                         {`{a: 1}`, ``, ``},
		"a path without its dot":          {`{a: 1}`, `a`, ``},
		"a key with dots":                 {`{a: {b.c/d: 1, b: {c/d: 2}}}`, `.a.b.c/d`, `{a: {b: {c/d: 2}}}`},
		"a field below a key with dots":   {`{a: {b.c/d: {e: 1, f: 2}}}`, `.a.b.c/d.e`, `{a: {b.c/d: {f: 2}}}`},
		"a key with dots that has not it": {`{a: {b.c: {}, b: {c: {d: 1}}}}`, `.a.b.c.d`, `{a: {b.c: {}, b: {c: {}}}}`},
		"an empty key":                    {`{a: {"": 1, b: 2}}`, `.a.`, `{a: {b: 2}}`},
		"a field below an empty key":      {`{a: {"": {c: 1}, b: 2}}`, `.a..c`, `{a: {"": {}, b: 2}}`},
		"a field of an item by its place": {`{a: [{b: 1}, {b: 2, c: 3}]}`, `.a[1].b`, `{a: [{b: 1}, {c: 3}]}`},
		"an item by its place":            {`{a: [1, 2, 3]}`, `.a[1]`, `{a: [1, 3]}`},
		"a missing item":                  {`{a: [1]}`, `.a[1]`, ``},
		"an item of a list in a list":     {`{a: [[1, 2], [3]]}`, `.a[0][1]`, `{a: [[1], [3]]}`},
		"a field of an item by its key": {pod, `.a.c[name="web"].image`,
			`{a: {c: [{name: web, ports: [{p: 80}, {p: 80, q: UDP}]}, {name: "a,b]=", image: z}, {image: y}]}}`},
		"an item by its key": {pod, `.a.c[name="web"]`, `{a: {c: [{name: "a,b]=", image: z}, {image: y}]}}`},
		"an item by an odd key": {pod, `.a.c[name="a,b]="]`,
			`{a: {c: [{name: web, image: x, ports: [{p: 80}, {p: 80, q: UDP}]}, {image: y}]}}`},
		"an item by two keys": {pod, `.a.c[name="web"].ports[p=80,q="UDP"]`,
			`{a: {c: [{name: web, image: x, ports: [{p: 80}]}, {name: "a,b]=", image: z}, {image: y}]}}`},
		"an item by a default": {pod, `.a.c[name="web"].ports[p=80,q="TCP"]`,
			`{a: {c: [{name: web, image: x, ports: [{p: 80, q: UDP}]}, {name: "a,b]=", image: z}, {image: y}]}}`},
		"a value":                       {`{a: [x, "y]=", z]}`, `.a[="y]="]`, `{a: [x, z]}`},
		"a number":                      {`{a: [1, 2, "2"]}`, `.a[=2]`, `{a: [1, "2"]}`},
		"a missing value":               {`{a: [x]}`, `.a[="y"]`, ``},
		"a value where items have keys": {`{a: [{b: 1}]}`, `.a[="b"]`, ``},
		"a key where items are values":  {`{a: [b]}`, `.a[b="c"]`, ``},
		"a path that ends early":        {`{a: [{b: 1}]}`, `.a[b=1`, ``},
		"a path that makes no sense":    {`{a: [{b: 1}]}`, `.a[b=1;c]`, ``},
		"a selector without a value":    {`{a: [{b: 1}]}`, `.a[b]`, ``},
		"a field of a list":             {`{a: [{b: 1}]}`, `.a.b`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			got := object(t, test.object)
			if had := fields.Has(got, test.path); had != (test.want != "") {
				t.Errorf("got Has %t, want %t", had, !had)
			}
			removed := fields.Remove(got, test.path)
			want := test.want
			if want == "" {
				want = test.object
			}
			if diff := cmp.Diff(object(t, want), got); diff != "" || removed != (test.want != "") {
				t.Errorf("removed: %t (-want +got):\n%s", removed, diff)
			}
		})
	}
}

func TestEmptyToNull(t *testing.T) {
	for name, test := range map[string]struct{ object, path, want string }{
		"a mapping":              {`{a: {b: {}}}`, `.a.b`, `{"a":{"b":null}}`},
		"a list":                 {`{a: []}`, `.a`, `{"a":null}`},
		"an item":                {`{a: [[1], []]}`, `.a[1]`, `{"a":[[1],null]}`},
		"one that has something": {`{a: {b: {}}}`, `.a`, `{"a":{"b":{}}}`},
		"text":                   {`{a: ""}`, `.a`, `{"a":""}`},
		"nothing":                {`{a: {}}`, `.b`, `{"a":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			current, before := object(t, test.object), object(t, test.object)
			made := fields.EmptyToNull(current, test.path)
			got, _ := json.Marshal(current) // never fails
			if string(got) != test.want || made == cmp.Equal(before, current) {
				t.Errorf("got %s (changed: %t), want %s", got, made, test.want)
			}
		})
	}
}
