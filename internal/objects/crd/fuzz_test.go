package crd_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/crd"
)

// FuzzGarbage reads texts of any kind.
func FuzzGarbage(f *testing.F) {
	for _, v := range validations(f) {
		for _, file := range v.Files {
			if file.Name != "want" {
				f.Add(v.Files[0].Data, file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, definitionText, resource []byte) {
		var definition, cr map[string]any
		if yaml.Unmarshal(definitionText, &definition) != nil || yaml.Unmarshal(resource, &cr) != nil {
			t.Skip()
		}
		survives(t, definition, cr)
	})
}

// FuzzNearlyRight takes definitions and custom resources that make sense, and puts
// garbage in a few places.
func FuzzNearlyRight(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, byte(seed%4), byte(seed/4%4))
	}
	all := validations(f)
	f.Fuzz(func(t *testing.T, seed uint64, wrongInDefinition, wrongInResource byte) {
		random := rand.New(rand.NewPCG(seed, seed))
		v := all[random.IntN(len(all))]
		definition := pick(random, v.definitions)
		cr := definition
		if len(v.objects) > 0 {
			cr = pick(random, v.objects)
		}
		for range wrongInDefinition % 8 {
			definition, _ = spoil(random, definition).(map[string]any)
		}
		for range wrongInResource % 8 {
			cr, _ = spoil(random, cr).(map[string]any)
		}
		survives(t, definition, cr)
	})
}

func pick(random *rand.Rand, entries []entry) map[string]any {
	return entries[random.IntN(len(entries))].object
}

// survives checks both, which must neither panic nor change them.
func survives(t *testing.T, definition, cr map[string]any) {
	t.Helper()
	before := [2]any{deepCopy(definition), deepCopy(cr)}
	checkShown(t, crd.CheckDefinition(t.Context(), definition))
	checkShown(t, crd.CheckDefinition(t.Context(), cr))
	if d, err := crd.NewDefinition(definition); err == nil {
		checkShown(t, d.Check(t.Context(), cr))
		checkShown(t, d.CheckUpdate(t.Context(), cr, cr))
	}
	if !reflect.DeepEqual(before, [2]any{any(definition), any(cr)}) {
		t.Error("the argument was changed")
	}
}

// checkShown checks that problems have one line, and a path if they are about unknown fields.
func checkShown(t *testing.T, problems []crd.Problem) {
	t.Helper()
	for _, p := range problems {
		if p.Message == "" || strings.Contains(p.Message, "\n") || p.Unknown && len(p.Path) == 0 {
			t.Errorf("not fit to be shown: %#v", p)
		}
	}
}

// deepCopy returns a copy.
func deepCopy(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if value == nil {
			return value
		}
		fields := map[string]any{}
		for key, item := range value {
			fields[key] = deepCopy(item)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = deepCopy(item)
		}
		return items
	default:
		return value
	}
}

// spoil returns a copy with garbage in one place.
func spoil(random *rand.Rand, value any) any {
	value = deepCopy(value)
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 || random.IntN(8) == 0 {
			value[garbageKey(random)] = garbage(random)
			return value
		}
		keys := slices.Sorted(maps.Keys(value))
		key := keys[random.IntN(len(keys))]
		if random.IntN(10) == 0 {
			delete(value, key)
		} else {
			value[key] = spoil(random, value[key])
		}
		return value
	case []any:
		if len(value) > 0 && random.IntN(4) > 0 {
			i := random.IntN(len(value))
			value[i] = spoil(random, value[i])
			return value
		}
	}
	return garbage(random)
}

func garbageKey(random *rand.Rand) string {
	keys := []string{"", ".", "a.b", "[0]", "metadata", "items", "properties", "default", "enum", "pattern", "format",
		"nullable", "anyOf", "not",
		"additionalProperties", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
		"x-kubernetes-embedded-resource",
		"x-kubernetes-list-type", "x-kubernetes-validations", "apiVersion", "kind", "\x1b[31m", "ä", "generateName"}
	return keys[random.IntN(len(keys))]
}

func garbage(random *rand.Rand) any {
	values := []any{
		nil, "", "a", "true", "\n", "\xff", "(", "self", "oldSelf == self", "password", "date-time",
		strings.Repeat("x", 300), true, false,
		0, 1, int64(-1), int64(math.MaxInt64), 0.5, 1e300, math.Inf(1), []any{}, []any{nil}, []any{"a", "a"},
		[]any{map[string]any{}},
		map[string]any{}, map[string]any{"type": "object"}, map[string]any{"a": nil}, map[string]any{"": "x"},
		[]any{map[string]any{"rule": "self"}},
		[]any{map[string]any{"rule": "size(self) > 0", "messageExpression": "self"}}, struct{}{}, []string{"a"},
	}
	return values[random.IntN(len(values))]
}
