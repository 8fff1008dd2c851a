package lint

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// rolledOut are the kinds whose pods are replaced when their template changes, and only then.
var rolledOut = []string{"Deployment", "StatefulSet", "DaemonSet"}

// checkUnreadChange looks for changed ConfigMaps and Secrets whose values programs do not get: those of variables, and
// files mounted with subPath, are read when a container starts, and a Job that has ended does not start again.
func checkUnreadChange(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		changed := slices.DeleteFunc(changedKeys(old, m), func(key string) bool {
			return s.whyDamaged(m, key) != "" || isRenamed(old, m, key)
		})
		if len(changed) == 0 || m.IsCreateOnly() {
			return
		}
		for _, u := range s.usesOf(m) {
			i := slices.IndexFunc(changed, func(key string) bool {
				return len(u.Keys) == 0 || slices.Contains(u.Keys, key)
			})
			if why := s.whyUnread(u, m); i >= 0 && why != "" {
				r.field(m, []string{m.dataField(changed[i]), changed[i]}, "%s has changed, and %s", changed[i], why)
				return
			}
		}
	})
}

// isRenamed reports whether a new key has the value of a removed one, which the rules for missing variables, keys
// and files report.
func isRenamed(old, m *manifest, key string) bool {
	_, wasSet := old.value(key)
	now, _ := m.value(key)
	return !wasSet && slices.ContainsFunc(old.keys(), func(name string) bool {
		before, _ := old.value(name)
		_, stays := m.value(name)
		return !stays && before == now
	})
}

// whyUnread returns the reason why a program does not read the changed values of an object, and what to do; "" if it
// reads them.
func (s *subject) whyUnread(u use, m *manifest) string {
	place := fmt.Sprintf("%s (%s:%d)", u.By.id, u.By.Path, u.By.Line)
	isKept, isReadOnce := s.keepsItsPods(u.By), isVariable(u.Reference) || u.By.mountsAlone(u.Reference)
	switch _, isRemoved := u.By.TimeToLive(); {
	case u.By.groupKind() == kinds.Job && !isRemoved && isKept && m.kind.Kind == "Secret": // it has no need of it
		return ""
	case u.By.groupKind() == kinds.Job && !isRemoved && isKept:
		return place + " does not run again: give the Job a new name, and delete this one"
	case !slices.Contains(rolledOut, u.By.kind.Kind) || !isReadOnce:
		return ""
	case isKept:
		return "the pods of " + place + " read it only at start and will not restart: add a checksum annotation to " +
			"the pod template, or give the " + m.kind.Kind + " a new name with each change"
	case before(u.By, m) && s.previousOf(u.By) != nil:
		return "the pods of " + place + " are replaced before this is applied, and read it only at start: name this " +
			"file so that it comes first"
	default:
		return ""
	}
}

// mountsAlone reports whether running containers do not get the changes of a volume of a reference: they mount its
// files with subPath, which the kubelet does not update, or only init containers have it.
func (m *manifest) mountsAlone(reference references.Reference) bool {
	i := slices.Index(reference.Path, "volumes")
	pods, hasPods := newPodSet(m)
	if i < 0 || !hasPods || pods.typed() == nil {
		return false
	}
	volume := fieldAt(m.Object().Object, append(slices.Clone(reference.Path[:i+2]), "name"))
	isMounted, isMountedFirst := false, false
	for _, c := range pods.typedContainers() {
		for _, mount := range c.VolumeMounts {
			switch {
			case mount.Name != volume:
			case c.isInit:
				isMountedFirst = true
			case mount.SubPath != "":
				return true
			default:
				isMounted = true
			}
		}
	}
	return isMountedFirst && !isMounted
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
	for _, key := range m.keys() {
		before, wasText := old.value(key)
		now, isText := m.value(key)
		if before != now || wasText != isText || old.text("binaryData", key) != m.text("binaryData", key) {
			changed = append(changed, key)
		}
	}
	return changed
}

// isVariable reports whether a reference is that of a container's variables.
func isVariable(reference references.Reference) bool {
	return slices.Contains(reference.Path, "env") || slices.Contains(reference.Path, "envFrom")
}

// keepsItsPods reports whether an update does not replace the pods of a workload.
func (s *subject) keepsItsPods(m *manifest) bool {
	before := s.previous.byID[m.id]
	return slices.ContainsFunc(before, func(old *manifest) bool {
		return reflect.DeepEqual(old.get("spec", "template"), m.get("spec", "template"))
	})
}
