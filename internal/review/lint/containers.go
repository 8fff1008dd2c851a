package lint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// A container is a container of a workload of a payload, with the variables and files that its manifest gives it.
type container struct {
	*corev1.Container
	before    *container // the one in the previous payload; nil if there is none, or if nothing has changed
	pods      podSet
	field     []string
	variables map[string]containerVariable
	files     map[string]mountedFile // by their paths
	// Whether the payload has all objects with variables, and all with files.
	hasVariables, hasFiles bool
}

// A containerVariable is a variable of a container.
type containerVariable struct {
	source   *manifest // the ConfigMap or Secret with the value; nil if the payload does not have it
	key      string
	literal  string // the value if there is no source, or a text that stands for it
	isSecret bool
	isWhole  bool // whether the container gets all values of the source
	index    int  // index in env; -1 if it is from envFrom
}

// value returns the value of a variable, or a text that stands for it.
func (v containerVariable) value() string {
	if v.source == nil {
		return v.literal
	}
	value, _ := v.source.value(v.key)
	return value
}

// A mountedFile is a file from a ConfigMap or a Secret.
type mountedFile struct {
	source *manifest
	key    string
	mount  int // index in volumeMounts
	mode   int32
	field  []string // field of the volume
}

// findContainers returns the containers of the workloads of this payload.
func (s *subject) findContainers() (found []*container) {
	s.eachPods(func(pods podSet, _ *corev1.PodSpec) {
		var before []*container
		if old := s.podsBefore(pods); old != nil && !s.isAsBefore(pods.by, old.by) {
			before = s.containersOf(s.previous, *old)
		}
		for _, c := range s.containersOf(s.index, pods) {
			if i := slices.IndexFunc(before, func(old *container) bool { return old.Name == c.Name }); i >= 0 {
				c.before = before[i]
			}
			found = append(found, c)
		}
	})
	return found
}

// isAsBefore reports whether neither a workload nor an object that it refers to has changed.
func (s *subject) isAsBefore(m, old *manifest) bool {
	return m.SameTextAs(old.Manifest) && !slices.ContainsFunc(m.references, func(reference references.Reference) bool {
		now, before := s.present(reference.To, m), s.in(s.previous, reference.To, m)
		return (now == nil) != (before == nil) || now != nil && !now.SameTextAs(before.Manifest)
	})
}

// containersOf returns the containers of pods; the pods are valid.
func (s *subject) containersOf(ix *index, pods podSet) (found []*container) {
	find := func(kind schema.GroupKind, name string) *manifest {
		return s.in(ix, kinds.NewID(kind, pods.by.id.Namespace, name), pods.by)
	}
	for _, typed := range pods.typedContainers() {
		c := &container{
			Container: &typed.Container, pods: pods, field: slices.Concat(pods.path, strings.Split(typed.field, "|")),
			variables: map[string]containerVariable{}, files: map[string]mountedFile{}, hasVariables: true,
			hasFiles: true,
		}
		c.addVariables(find)
		for i, mount := range c.VolumeMounts {
			if j := volumeOf(pods.typed(), mount); j >= 0 {
				c.addFiles(find, i, j)
			}
		}
		found = append(found, c)
	}
	return found
}

// addVariables adds the variables of a container, in the order in which later ones replace earlier ones.
func (c *container) addVariables(find func(schema.GroupKind, string) *manifest) {
	for _, from := range c.EnvFrom {
		var source *manifest
		if from.SecretRef != nil {
			source = find(kinds.Secret, from.SecretRef.Name)
		} else if from.ConfigMapRef != nil {
			source = find(kinds.ConfigMap, from.ConfigMapRef.Name)
		}
		if source == nil || len(source.keys()) == 0 { // a controller may write its values
			c.hasVariables = false
			continue
		}
		for _, key := range source.keys() {
			c.variables[from.Prefix+key] = containerVariable{source: source, key: key, isWhole: true, index: -1}
		}
	}
	for i, env := range c.Env {
		v := containerVariable{literal: env.Value, index: i}
		if from := env.ValueFrom; from != nil {
			v.literal, v.isSecret = from.String(), from.SecretKeyRef != nil
		}
		c.variables[env.Name] = v
	}
}

// volumeOf returns the index of the volume of a mount; -1 if there is none.
func volumeOf(spec *corev1.PodSpec, mount corev1.VolumeMount) int {
	return slices.IndexFunc(spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == mount.Name })
}

// addFiles adds the files of a mounted volume.
func (c *container) addFiles(find func(schema.GroupKind, string) *manifest, mount, volume int) {
	source, files, kind := c.pods.typed().Volumes[volume], []corev1.VolumeProjection{}, ""
	var mode *int32
	if v := source.ConfigMap; v != nil {
		projection := &corev1.ConfigMapProjection{LocalObjectReference: v.LocalObjectReference, Items: v.Items}
		files, mode, kind = []corev1.VolumeProjection{{ConfigMap: projection}}, v.DefaultMode, "configMap"
	} else if v := source.Secret; v != nil {
		projection := &corev1.SecretProjection{Items: v.Items}
		projection.Name = v.SecretName
		files, mode, kind = []corev1.VolumeProjection{{Secret: projection}}, v.DefaultMode, "secret"
	} else if v := source.Projected; v != nil {
		files, mode, kind = v.Sources, v.DefaultMode, "projected"
	}
	added := mountedFile{
		mount: mount, mode: *cmp.Or(mode, &defaultMode),
		field: append(slices.Clone(c.pods.path), "volumes", strconv.Itoa(volume), kind, "defaultMode"),
	}
	for _, part := range files {
		if v := part.ConfigMap; v != nil {
			c.addItems(find(kinds.ConfigMap, v.Name), v.Items, added)
		} else if v := part.Secret; v != nil {
			c.addItems(find(kinds.Secret, v.Name), v.Items, added)
		}
	}
}

// defaultMode is the mode of files of volumes that have none.
var defaultMode int32 = 0o644

// addItems adds the files of a ConfigMap or a Secret in a volume: the items, or all if there are none.
func (c *container) addItems(source *manifest, items []corev1.KeyToPath, added mountedFile) {
	mount := c.VolumeMounts[added.mount]
	if source == nil || len(source.keys()) == 0 || mount.SubPathExpr != "" { // a controller may write its values
		c.hasFiles = false
		return
	}
	if len(items) == 0 {
		for _, key := range source.keys() {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		within, isMounted := item.Path, true
		if mount.SubPath != "" {
			within, isMounted = strings.CutPrefix(item.Path+"/", mount.SubPath+"/")
		}
		if isMounted {
			one := added
			one.source, one.key = source, item.Key
			if item.Mode != nil {
				one.mode = *item.Mode
			}
			c.files[path.Join(mount.MountPath, within)] = one
		}
	}
}

// report reports a finding about a field of a container.
func (c *container) report(r *reporter, field []string, format string, args ...any) {
	r.field(c.pods.by, slices.Concat(c.field, field), "the container %s %s", c.Name, fmt.Sprintf(format, args...))
}
