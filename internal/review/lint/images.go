package lint

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This rule is about images of containers that change otherwise than intended, or do not change.

// An image is the parts of the name of an image.
type image struct{ repository, tag, digest string }

func parseImage(name string) image {
	name, digest, _ := strings.Cut(name, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return image{name[:i], name[i+1:], digest}
	}
	return image{name, "", digest}
}

// movingTags are the usual tags whose images change.
var movingTags = []string{"", "latest", "stable", "main", "master", "edge", "dev", "develop", "nightly"}

// isMutable reports whether the name stands for other images at other times.
func (i image) isMutable() bool { return i.digest == "" && slices.Contains(movingTags, i.tag) }

// registry returns the host in the name; "" if it has none and the image comes from the default one.
func (i image) registry() string {
	host, _, isLong := strings.Cut(i.repository, "/")
	if !isLong || !strings.ContainsAny(host, ".:") {
		return ""
	}
	return host
}

// A containerImage is the image of a container, with its place.
type containerImage struct {
	by              *manifest
	container, name string
	path            []string
}

// images returns the images of pods.
func (p podSet) images() (found []containerImage) {
	containers, paths := p.containers("initContainers", "containers")
	for i, container := range containers {
		name, _ := container["name"].(string)
		text, _ := container["image"].(string)
		found = append(found, containerImage{p.by, name, text, append(paths[i], "image")})
	}
	return found
}

func checkImageVersion(s *subject, r *reporter) {
	updated := map[string][]containerImage{} // by their earlier names
	s.podPairs(func(old, now podSet) {
		before := map[string]string{}
		for _, i := range old.images() {
			before[i.container] = i.name
		}
		for _, i := range now.images() {
			if earlier := before[i.container]; earlier != "" && earlier != i.name {
				if parseImage(earlier).repository == parseImage(i.name).repository {
					updated[earlier] = append(updated[earlier], i)
				}
				checkChangedImage(old, parseImage(earlier), i, r)
			}
		}
	})
	s.checkImagesLeft(updated, r)
}

// digits are what differs in the names of repositories that have a version.
var digits = regexp.MustCompile(`[0-9]+`)

// checkChangedImage looks for a misspelt, a mutable, or an older image.
func checkChangedImage(old podSet, earlier image, now containerImage, r *reporter) {
	next, place := parseImage(now.name), old.by.place()
	switch before, after := versionOf(earlier.tag), versionOf(next.tag); {
	case earlier.repository == earlier.registry()+"/"+strings.TrimPrefix(next.repository, "localhost/"):
		r.field(now.by, now.path, "%s no longer names the registry %s of %s, and nodes look for it elsewhere: name "+
			"that registry", now.name, earlier.registry(), place)
	case earlier.repository != next.repository:
		if printable.EditDistance(earlier.repository, next.repository) <= 2 &&
			digits.ReplaceAllString(earlier.repository, "") != digits.ReplaceAllString(next.repository, "") {
			r.field(now.by, now.path, "%s is nearly %s of %s: if it is a misspelling, no node can pull it and new "+
				"pods do not start: correct it", next.repository, earlier.repository, place)
		}
	case next.isMutable() && !earlier.isMutable():
		r.field(now.by, now.path, "%s is the latest image and no version, and %s has %s: pods that start later get "+
			"other versions, and no rollback gets the earlier one: name a version", now.name, place,
			earlier.tag+earlier.digest)
	case before == nil || after == nil || !after.LessThan(before) || before.Major() >= 1000 && after.Major() < 1000:
	case !old.hasClaims():
		r.note(now.by, now.path, "%s is older than %s of %s: unless this is a rollback, name a later version", now.name,
			earlier.tag, place)
	default:
		r.field(now.by, now.path, "%s is older than %s of %s: it may not read the data that the later version has "+
			"written: name that or a later version", now.name, earlier.tag, place)
	}
}

// versionTag matches a version at the begin of a tag.
var versionTag = regexp.MustCompile(`^v?([0-9]+(\.[0-9]+)*)([-+_].*)?$`)

// versionOf returns the version in a tag; nil if it has none. Versions of years are those from 1000.
func versionOf(tag string) *version.Version {
	parts := versionTag.FindStringSubmatch(tag)
	if parts == nil {
		return nil
	}
	parsed, err := version.ParseGeneric(parts[1] + ".0")
	if err != nil {
		return nil
	}
	return parsed
}

// checkImagesLeft looks for containers that keep an image which most others of their namespace update.
func (s *subject) checkImagesLeft(updated map[string][]containerImage, r *reporter) {
	left := map[[2]string][]containerImage{} // by namespace and image
	s.eachPods(func(pods podSet, _ *corev1.PodSpec) {
		if pods.by.groupKind() == kinds.Job || s.previousOf(pods.by) == nil {
			return // the image of a Job can't be changed
		}
		for _, i := range pods.images() {
			key := [2]string{i.by.id.Namespace, i.name}
			left[key] = append(left[key], i)
		}
	})
	for key, stay := range left {
		changed := slices.DeleteFunc(slices.Clone(updated[key[1]]), func(i containerImage) bool {
			return i.by.id.Namespace != key[0]
		})
		if len(stay) > len(changed) || strings.Contains(stay[0].by.id.Name+changed[0].by.id.Name, "canary") {
			continue
		}
		for _, i := range stay {
			r.field(i.by, i.path, "the container %s stays at %s, and the container %s of %s (%s) gets %s: update both",
				i.container, i.name, changed[0].container, changed[0].by.id, changed[0].by.place(), changed[0].name)
		}
	}
}
