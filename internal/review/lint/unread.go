package lint

import (
	"reflect"
	"slices"

	"github.com/runlevel/runlevel/internal/references"
)

// rolledOut are the kinds whose pods are replaced when their template changes, and only then.
var rolledOut = []string{"Deployment", "StatefulSet", "DaemonSet"}

// checkUnreadChange looks for changed ConfigMaps and Secrets whose values running pods do not get: those of variables
// are read when a container starts, and the templates of the pods are as before.
func checkUnreadChange(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		changed := changedKeys(old, m)
		if len(changed) == 0 {
			return
		}
		for _, u := range s.usesOf(m) {
			isNeeded := len(u.Keys) == 0 ||
				slices.ContainsFunc(u.Keys, func(key string) bool { return slices.Contains(changed, key) })
			if isNeeded && isVariable(u.Reference) && s.keepsItsPods(u.By) {
				r.field(m, []string{m.dataField(changed[0]), changed[0]},
					"%s has changed, and the pods of %s (%s:%d) read it only at start and will not restart: add a "+
						"checksum "+
						"annotation to the pod template, or give the %s a new name with each change", changed[0],
					u.By.id,
					u.By.Path, u.By.Line, m.kind.Kind)
				return
			}
		}
	})
}

// dataFields are the fields of a ConfigMap or a Secret with its values.
var dataFields = []string{"data", "stringData", "binaryData"}

// dataField returns the field that has a key.
func (m *manifest) dataField(key string) string {
	for _, field := range dataFields {
		if values, _ := m.get(field).(map[string]any); values[key] != nil {
			return field
		}
	}
	return dataFields[0]
}

// changedKeys returns the keys of a ConfigMap or a Secret whose values differ from those before, in order.
func changedKeys(old, m *manifest) (changed []string) {
	if m.kind.Kind != "ConfigMap" && m.kind.Kind != "Secret" || m.kind.Group != "" {
		return nil
	}
	for _, field := range dataFields {
		before, _ := old.get(field).(map[string]any)
		now, _ := m.get(field).(map[string]any)
		for key, value := range now {
			if !reflect.DeepEqual(before[key], value) {
				changed = append(changed, key)
			}
		}
	}
	slices.Sort(changed)
	return changed
}

// isVariable reports whether a reference is that of a container's variables.
func isVariable(reference references.Reference) bool {
	return slices.Contains(reference.Path, "env") || slices.Contains(reference.Path, "envFrom")
}

// keepsItsPods reports whether an update does not replace the pods of a workload.
func (s *subject) keepsItsPods(m *manifest) bool {
	if !slices.Contains(rolledOut, m.kind.Kind) {
		return false
	}
	before := s.previous.byID[m.id]
	return slices.ContainsFunc(before, func(old *manifest) bool {
		return reflect.DeepEqual(old.get("spec", "template"), m.get("spec", "template"))
	})
}
