package lint

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// checkMissingFile looks for files from ConfigMaps and Secrets that a container no longer has, although something in it
// still names them, or its program is the same and the pod still has the volume.
func checkMissingFile(s *subject, r *reporter) {
	for _, c := range s.containers() {
		if c.before == nil || !c.hasFiles || !c.before.hasFiles {
			continue
		}
		isDone := map[int]bool{} // mounts of which a file is reported
		for _, name := range sortedKeys(c.before.files) {
			file := c.before.files[name]
			_, exists := c.files[name]
			if exists || isDone[file.mount] || c.hasOtherVolumeAt(name) {
				continue
			}
			by, isLost := c.nameIn(name), c.isMountLost(file.mount)
			if by == "" && isLost && slices.Contains([]string{"command", "args"}, c.nameIn(path.Dir(name))) {
				by = "an argument with its directory"
			}
			isDone[file.mount] = by != "" || isLost && c.isSameProgram(s)
			switch {
			case by != "":
				c.report(r, nil, "no longer has the file %s, and %s names it: change both together", name, by)
			case isDone[file.mount]:
				c.report(r, nil, "no longer has the file %s, and its image and arguments are the same: keep the file "+
					"until an image no longer reads it", name)
			}
		}
	}
}

// isMountLost reports whether a container has no file of an earlier mount, and its pod still has the volume. Without
// the volume, the mount was probably removed on purpose.
func (c *container) isMountLost(mount int) bool {
	for name, file := range c.before.files {
		if _, exists := c.files[name]; exists && file.mount == mount {
			return false
		}
	}
	return volumeOf(c.pods.typed(), c.before.VolumeMounts[mount]) >= 0
}

// hasOtherVolumeAt reports whether a volume whose files are not known may have a file.
func (c *container) hasOtherVolumeAt(name string) bool {
	spec := c.pods.typed()
	return slices.ContainsFunc(c.VolumeMounts, func(mount corev1.VolumeMount) bool {
		i := volumeOf(spec, mount)
		isKnown := i >= 0 && (spec.Volumes[i].ConfigMap != nil || spec.Volumes[i].Secret != nil)
		return !isKnown && strings.HasPrefix(name+"/", path.Clean(mount.MountPath)+"/")
	})
}

// nameIn returns the part of a container that names a file; "" if none does.
func (c *container) nameIn(name string) string {
	texts := map[string]string{"command": strings.Join(c.Command, "\n"), "args": strings.Join(c.Args, "\n")}
	for variable, v := range c.variables {
		texts["the variable "+variable] = v.value()
	}
	for other, file := range c.files {
		texts["the file "+other], _ = file.source.value(file.key)
	}
	named := regexp.MustCompile(regexp.QuoteMeta(name) + `([^\w./-]|$)`)
	for _, part := range sortedKeys(texts) {
		if named.MatchString(texts[part]) {
			return part
		}
	}
	return ""
}

// systemDirectories are directories that the images of nearly all programs need.
var systemDirectories = []string{"/", "/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/usr/bin",
	"/usr/lib", "/usr/sbin"}

// checkUnusableMount looks for volumes that hide the programs of an image, and for files that a container may not read
// or execute.
func checkUnusableMount(s *subject, r *reporter) {
	for _, c := range s.containers() {
		spec := c.pods.typed()
		program := ""
		if len(c.Command) > 0 {
			program = c.Command[0]
		}
		for i, mount := range c.VolumeMounts {
			j, directory := volumeOf(spec, mount), path.Clean(mount.MountPath)
			if j >= 0 && mount.SubPath != "" && c.isWithoutFiles(i, spec.Volumes[j]) {
				c.report(r, []string{"volumeMounts", strconv.Itoa(i), "subPath"}, "gets an empty directory at %s, as "+
					"the volume %s has no file %s: correct subPath", mount.MountPath, mount.Name, mount.SubPath)
			}
			if j < 0 || mount.SubPath+mount.SubPathExpr != "" || !isFilledByManifests(spec, spec.Volumes[j]) {
				continue
			}
			field := []string{"volumeMounts", strconv.Itoa(i), "mountPath"}
			_, isIn := c.files[program]
			switch {
			case slices.Contains(systemDirectories, directory):
				c.report(r, field, "does not have the files of its image in %s, which the volume %s hides: change "+
					"mountPath to another directory, or mount single files with subPath", directory, mount.Name)
			case strings.HasPrefix(program, directory+"/") && !isIn && c.hasFiles:
				c.report(r, field, "does not have its program %s, which the volume %s hides: change mountPath to "+
					"another directory", program, mount.Name)
			}
		}
		c.checkModes(program, r)
		if c.isSameProgram(s) {
			c.checkScratch(r)
		}
	}
}

// checkScratch looks for directories of its own that a container no longer has, and may not write without a volume.
func (c *container) checkScratch(r *reporter) {
	security, spec := c.SecurityContext, c.before.pods.typed()
	if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		return
	}
	for _, mount := range c.before.VolumeMounts {
		i := volumeOf(spec, mount)
		if i >= 0 && spec.Volumes[i].EmptyDir != nil && isFilledByManifests(spec, spec.Volumes[i]) &&
			!slices.ContainsFunc(c.VolumeMounts, func(now corev1.VolumeMount) bool {
				return strings.HasPrefix(mount.MountPath+"/", path.Clean(now.MountPath)+"/")
			}) {
			c.report(r, nil, "can't write to %s, since readOnlyRootFilesystem is true and its emptyDir is gone: keep "+
				"the volume", mount.MountPath)
		}
	}
}

// isWithoutFiles reports whether a mount has no file of its volume of a ConfigMap or a Secret.
func (c *container) isWithoutFiles(mount int, volume corev1.Volume) bool {
	if !c.hasFiles || volume.ConfigMap == nil && volume.Secret == nil {
		return false
	}
	for _, file := range c.files {
		if file.mount == mount {
			return false
		}
	}
	return true
}

// checkModes looks for a file that a container may not read, or not execute. It reports one for each container.
func (c *container) checkModes(program string, r *reporter) {
	user := c.otherUser()
	for _, name := range sortedKeys(c.files) {
		switch file := c.files[name]; {
		case name == program && file.mode&0o111 == 0:
			r.field(c.pods.by, file.field, "no user may execute %s, the command of the container %s: set defaultMode: "+
				"0755", name, c.Name)
			return
		case file.mode&0o044 == 0 && user != "":
			r.field(c.pods.by, file.field, "the mode %04o lets only root read %s, and the container %s runs as %s: "+
				"set fsGroup in the securityContext of the pod, or defaultMode: 0444", file.mode, name, c.Name, user)
			return
		}
	}
}

// isFilledByManifests reports whether a volume has only files of ConfigMaps, Secrets and fields, or is a directory for
// one container, which is empty when it starts.
func isFilledByManifests(spec *corev1.PodSpec, volume corev1.Volume) bool {
	mounts := 0
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range containers {
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name }) {
				mounts++
			}
		}
	}
	return volume.ConfigMap != nil || volume.Secret != nil || volume.Projected != nil || volume.DownwardAPI != nil ||
		volume.EmptyDir != nil && mounts == 1
}

// otherUser returns the user of a container, for messages; "" if it may be root, or if volumes have a group.
func (c *container) otherUser() string {
	spec := c.pods.typed()
	switch user, isNotRoot := userOf(spec, *c.Container); {
	case spec.SecurityContext != nil && spec.SecurityContext.FSGroup != nil || user != nil && *user == 0:
		return ""
	case user != nil:
		return "user " + strconv.FormatInt(*user, 10)
	case isNotRoot:
		return "a user who is not root"
	}
	return ""
}
