package apply

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/cluster"
)

// applyDraft applies what is said of an object, without the fields that the cluster does not
// know if that is allowed.
func (r *run) applyDraft(o *object, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	applied, err := r.write(o, draft, how)
	r.warn(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
	unknown := unknownFields(err)
	if len(unknown) == 0 || r.hasWritten(o.resource.Group) {
		return applied, err
	}
	if !r.options.DropUnknownFields {
		return applied, refusal{ResourceInvalid, "the cluster knows no field " + strings.Join(r.allUnknown(o.resource, draft, unknown), ", ") +
			" of it: correct or remove it, or let such fields be left out with --unknown-fields=drop"}
	}
	if !removeFields(draft, unknown) {
		return applied, err
	}
	o.isLean = true
	for _, path := range unknown {
		r.warn(o.Manifest, []string{"the cluster knows no field " + path + ": left out"})
	}
	return r.applyDraft(o, draft, how)
}

// allUnknown adds to some unknown fields those that the server names only once these are
// gone, for it does not look below a mapping that has some.
func (r *run) allUnknown(resource cluster.Resource, object *unstructured.Unstructured, unknown []string) []string {
	all, rest := slices.Clone(unknown), object.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := r.cluster.Apply(r.requests, resource, rest, cluster.Forced|cluster.Dry)
		unknown = unknownFields(err)
		all = append(all, unknown...)
	}
	slices.Sort(all)
	return all
}

// removeFields takes fields out of an object. It says whether it got on with that.
func removeFields(object *unstructured.Unstructured, paths []string) bool {
	removed := false
	for _, path := range paths {
		removed = removeField(object.Object, path) || removed
	}
	return removed
}

// removeField takes a field out of an object, by the path with which the API server
// names it: .spec.containers[name="web"].image. It says whether it was there.
func removeField(value any, path string) bool {
	switch value := value.(type) {
	case map[string]any:
		return removeKey(value, path)
	case []any:
		if index, rest, isIndex := cutIndex(path); isIndex {
			return index < len(value) && removeField(value[index], rest)
		}
		selector, rest, isItem := cutSelector(path)
		for _, item := range value {
			if isItem && matches(item, selector) && removeField(item, rest) {
				return true
			}
		}
	}
	return false
}

// removeKey takes a key out of a mapping. Keys may have dots, which the path does not
// set off: the longest key that is there is meant.
func removeKey(fields map[string]any, path string) bool {
	path, isKey := strings.CutPrefix(path, ".")
	if !isKey {
		return false
	}
	if _, found := fields[path]; found {
		delete(fields, path)
		return true
	}
	for end := len(path) - 1; end > 0; end-- {
		if path[end] != '.' && path[end] != '[' {
			continue
		}
		if inner, found := fields[path[:end]]; found && removeField(inner, path[end:]) {
			return true
		}
	}
	return false
}

// cutIndex takes the [2] off the front of a path.
func cutIndex(path string) (index int, rest string, ok bool) {
	inner, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
	number, err := strconv.ParseUint(inner, 10, 31)
	return int(number), rest, err == nil
}

// cutSelector takes the [name="web"] off the front of a path.
func cutSelector(path string) (selector map[string]any, rest string, ok bool) {
	inner, isItem := strings.CutPrefix(path, "[")
	if !isItem {
		return nil, "", false
	}
	selector = map[string]any{}
	for {
		key, after, found := strings.Cut(inner, "=")
		if !found {
			return nil, "", false
		}
		decoder := json.NewDecoder(strings.NewReader(after))
		var value any
		if decoder.Decode(&value) != nil {
			return nil, "", false
		}
		selector[key] = value
		inner = after[decoder.InputOffset():]
		if rest, ends := strings.CutPrefix(inner, "]"); ends {
			return selector, rest, true
		}
		if inner, found = strings.CutPrefix(inner, ","); !found {
			return nil, "", false
		}
	}
}

// matches says whether an item of a list is the one that a selector means.
func matches(item any, selector map[string]any) bool {
	fields, isMapping := item.(map[string]any)
	if !isMapping {
		return false
	}
	for key, wanted := range selector {
		is, _ := json.Marshal(fields[key])
		want, _ := json.Marshal(wanted)
		if string(is) != string(want) && fields[key] != nil { // a default need not be written
			return false
		}
	}
	return true
}
