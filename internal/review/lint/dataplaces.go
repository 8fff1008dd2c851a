package lint

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// These rules are about the places where the programs of pods find their data.

// A place is a directory of a container with a volume.
type place struct {
	container int
	path      string
	data      string // the claim, or the directory of a node or server; "" if it has no data that stay
	claim     kinds.ID
	isEmpty   bool // the volume goes with the pod
	sub       string
	isRead    bool     // the container may not write there
	mount     []string // field of the mount
	field     []string // field of the volume that chooses the data
}

// describe returns the data with the directory in them.
func (p place) describe() string {
	if p.sub != "" {
		return p.sub + " of " + p.data
	}
	return p.data
}

// places returns the places of pods.
func (p podSet) places() (found []place) {
	spec := p.typed()
	if spec == nil {
		return nil
	}
	for i, container := range spec.Containers {
		for j, mount := range container.VolumeMounts {
			item := p.placeOf(spec, mount.Name)
			item.container, item.path, item.isRead = i, path.Clean(mount.MountPath), item.isRead || mount.ReadOnly
			item.sub = mount.SubPath + mount.SubPathExpr
			item.mount = append(slices.Clone(p.path), "containers", strconv.Itoa(i), "volumeMounts", strconv.Itoa(j))
			found = append(found, item)
		}
	}
	return found
}

// nodeData matches the directories of nodes that have the data of a program.
var nodeData = regexp.MustCompile(`^/(var/lib|data|mnt|srv|opt)/`)

// placeOf returns the data of a volume.
func (p podSet) placeOf(spec *corev1.PodSpec, volume string) place {
	namespace := p.by.id.Namespace
	if templates, _ := p.by.get("spec", "volumeClaimTemplates").([]any); p.by.kind.Kind == "StatefulSet" {
		for i, template := range templates {
			if fieldAt(template, []string{"metadata", "name"}) == volume {
				first, _ := p.by.get("spec", "ordinals", "start").(int64)
				claim := kinds.NewID(kinds.PersistentVolumeClaim, namespace,
					fmt.Sprintf("%s-%s-%d", volume, p.by.id.Name, first))
				field := []string{"spec", "volumeClaimTemplates", strconv.Itoa(i)}
				if first > 0 {
					field = []string{"spec", "ordinals"}
				}
				return place{data: claim.String(), claim: claim, field: field}
			}
		}
	}
	for i, v := range spec.Volumes {
		field := func(keys ...string) []string {
			return slices.Concat(p.path, []string{"volumes", strconv.Itoa(i)}, keys)
		}
		switch {
		case v.Name != volume:
		case v.PersistentVolumeClaim != nil:
			claim := kinds.NewID(kinds.PersistentVolumeClaim, namespace, v.PersistentVolumeClaim.ClaimName)
			return place{data: claim.String(), claim: claim, isRead: v.PersistentVolumeClaim.ReadOnly,
				field: field("persistentVolumeClaim", "claimName")}
		case v.EmptyDir != nil:
			return place{isEmpty: true, field: field("emptyDir")}
		case v.Ephemeral != nil:
			return place{isEmpty: true, field: field("ephemeral")}
		case v.NFS != nil:
			return place{data: "nfs " + v.NFS.Server + ":" + v.NFS.Path, isRead: v.NFS.ReadOnly, field: field("nfs")}
		case v.HostPath != nil && nodeData.MatchString(v.HostPath.Path):
			return place{data: "hostPath " + v.HostPath.Path, field: field("hostPath", "path")}
		}
	}
	return place{}
}

// successors calls report for the pods of workloads that the previous payload has, too, or that take the place of one
// of its workloads: with another name or namespace, or of another kind, and the same labels. Those that are as before
// with all that they refer to are left out.
func (s *subject) successors(report func(old, now podSet)) {
	before := map[string]podSet{} // by ID, and those of removed workloads by labels
	for _, sets := range s.previous.pods() {
		for _, old := range sets {
			before[old.by.id.String()] = old
			if s.present(old.by.id, old.by) == nil && len(old.labels) > 0 {
				before[old.labels.String()] = old
			}
		}
	}
	lasts := func(p podSet) bool { return p.typed() != nil && (p.restarts() || p.by.groupKind() == kinds.CronJob) }
	for _, sets := range s.pods() {
		for _, now := range sets {
			old, isKnown := before[now.by.id.String()]
			if !isKnown {
				old, isKnown = before[now.labels.String()]
			}
			if isKnown && lasts(old) && lasts(now) && !s.isAsBefore(now.by, old.by) && s.shareCluster(old.by, now.by) {
				report(old, now)
			}
		}
	}
}

// sameContainer returns the index of a container of the earlier pods in the present ones; -1 if it is not there.
func sameContainer(old, now *corev1.PodSpec, index int) int {
	if len(old.Containers) == 1 && len(now.Containers) == 1 {
		return 0
	}
	name := old.Containers[index].Name
	return slices.IndexFunc(now.Containers, func(c corev1.Container) bool { return c.Name == name })
}

// checkDataLeftBehind looks for containers that find other data, or none, where their data was.
func checkDataLeftBehind(s *subject, r *reporter) {
	s.successors(func(old, now podSet) {
		had, has := old.places(), now.places()
		for _, earlier := range had {
			if earlier.data == "" || earlier.isRead {
				continue
			}
			index := sameContainer(old.typed(), now.typed(), earlier.container)
			i := slices.IndexFunc(has, func(p place) bool { return p.container == index && p.path == earlier.path })
			field, data := []string(nil), ""
			switch {
			case index < 0:
			case i < 0:
				field, data = s.unmounted(old, now, earlier, index), "no volume"
			case has[i].isEmpty:
				field, data = has[i].field, "a directory that goes with the pod"
			case s.isNewData(now, earlier, has[i]):
				field, data = has[i].field, "a new "+has[i].data
			case has[i].data == earlier.data && has[i].isRead:
				now.reportReadOnly(r, old, earlier, has[i])
			case has[i].data == earlier.data && has[i].sub != earlier.sub:
				field, data = append(has[i].mount, "subPath"), has[i].describe()
			}
			if field != nil {
				r.field(now.by, field, "%s puts %s of the container %s into %s, and its data are in %s (%s): take it "+
					"back, or copy the data first", references.Reference{Path: field}.Field(), earlier.path,
					now.typed().Containers[index].Name, data, earlier.describe(), old.by.place())
			}
		}
		reportSettings(r, old, now)
	})
}

// reportReadOnly reports data that a program of the same image may no longer write. Other directories may be filled by
// others.
func (p podSet) reportReadOnly(r *reporter, old podSet, earlier, present place) {
	before, after := old.typed().Containers[earlier.container], p.typed().Containers[present.container]
	isOwn := p.by.groupKind() == kinds.StatefulSet || dataSetting.MatchString(earlier.path)
	if before.Image == after.Image && isOwn {
		r.field(p.by, present.mount, "the container %s may no longer write to %s, where it has %s, and its image is "+
			"the same: drop readOnly", after.Name, earlier.path, earlier.describe())
	}
}

// isNewData reports whether a place has other data than before, which this payload makes.
func (s *subject) isNewData(now podSet, earlier, present place) bool {
	switch {
	case present.data == earlier.data || present.isRead:
		return false
	case present.claim.Kind == "":
		return present.data != "" && earlier.claim.Kind == ""
	}
	made := s.byID[present.claim]
	isFilled := slices.ContainsFunc(made, func(m *manifest) bool {
		return m.get("spec", "dataSource") != nil || m.get("spec", "dataSourceRef") != nil ||
			m.get("spec", "volumeName") != nil
	})
	if !slices.Contains(present.field, "volumes") { // the StatefulSet makes it
		return slices.ContainsFunc(references.ClaimsOf(now.by.Object()), func(claim kinds.ID) bool {
			return !s.data().HasClaim(claim)
		})
	}
	return len(made) > 0 && !isFilled && !s.data().HasClaim(present.claim)
}

// unmounted returns the field that leaves a directory without a volume, of an otherwise unchanged container; nil
// if the program may write elsewhere.
func (s *subject) unmounted(old, now podSet, earlier place, index int) []string {
	before, after := old.typed().Containers[earlier.container], now.typed().Containers[index]
	has := now.places()
	before.VolumeMounts, after.VolumeMounts, before.Name = nil, nil, after.Name
	if _, _, isCovered := placeAt(has, index, path.Dir(earlier.path)); isCovered || earlier.claim.Kind == "" ||
		!reflect.DeepEqual(before, after) {
		return nil
	}
	for _, p := range has {
		if p.container == index && p.data == earlier.data {
			return append(p.mount, "mountPath")
		}
	}
	return append(slices.Clone(now.path), "containers", strconv.Itoa(index))
}

// placeAt returns the place that has a path of a container, and the rest of the path; false if none with data has it.
func placeAt(places []place, container int, name string) (found place, rest string, hasData bool) {
	for _, p := range places {
		below, isBelow := strings.CutPrefix(name+"/", strings.TrimSuffix(p.path, "/")+"/")
		if p.container == container && isBelow && len(p.path) > len(found.path) {
			found, rest = p, path.Join(p.sub, below)
		}
	}
	return found, rest, found.data != ""
}

// dataSetting matches the names of variables and arguments with the directory of a program's data.
var dataSetting = regexp.MustCompile(`(?i)data|stor(e|age)|tsdb|queue|upload|back-?up|^-D$|^/var/lib/`)

// passingSetting matches the names of variables and arguments with files that are of no lasting value.
var passingSetting = regexp.MustCompile(`(?i)(^|[-_])(logs?|cache|te?mp|conf(ig)?|sock(et)?|pid)`)

// elsewhere matches paths that have no data.
var elsewhere = regexp.MustCompile(`^/(dev|etc|proc|run|sys|usr|bin)/`)

// pathSettings returns the variables and arguments of a container that name a path.
func pathSettings(c corev1.Container) map[string]string {
	found, texts := map[string]string{}, slices.Concat(c.Command, c.Args)
	for _, variable := range c.Env {
		texts = append(texts, variable.Name+"="+variable.Value)
	}
	for i, text := range texts {
		name, value, hasValue := strings.Cut(text, "=")
		if !hasValue && i+1 < len(texts) {
			value = texts[i+1]
		}
		if strings.HasPrefix(value, "/") && !strings.HasPrefix(name, "/") {
			found[name] = path.Clean(value)
		}
	}
	return found
}

// reportSettings reports variables and arguments that no longer lead to the data.
func reportSettings(r *reporter, old, now podSet) {
	for i, container := range now.typed().Containers {
		j := sameContainer(now.typed(), old.typed(), i)
		if j < 0 {
			continue
		}
		before := pathSettings(old.typed().Containers[j])
		for name, value := range pathSettings(container) {
			source, inside, hadData := placeAt(old.places(), j, before[name])
			target, rest, hasData := placeAt(now.places(), i, value)
			isFound := hasData && (rest == inside || target.data != source.data)
			isLost := source.claim.Kind != "" && (target.path == "" || target.isEmpty) &&
				!passingSetting.MatchString(name) && !elsewhere.MatchString(value)
			if before[name] != "" && hadData && !isFound && (isLost || dataSetting.MatchString(name)) {
				now.field(r, "containers|"+strconv.Itoa(i), "%s leads to %s, and the data are in %s of %s, to which "+
					"it led in %s: take it back, or move the data first", name, value, cmp.Or(inside, "the root"),
					source.data, old.by.place())
			}
		}
	}
}
