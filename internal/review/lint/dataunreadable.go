package lint

import (
	"cmp"
	"encoding/base64"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// checkDataUnreadable looks for programs that get another user, version or key than the one that wrote their data.
func checkDataUnreadable(s *subject, r *reporter) {
	s.successors(func(old, now podSet) {
		if now.by.groupKind() == kinds.CronJob {
			return // it writes new files, and its passwords are those of servers
		}
		had, seen := old.places(), map[int]bool{}
		for _, p := range now.places() {
			i := slices.IndexFunc(had, func(q place) bool { return q.data == p.data && !q.isRead })
			if p.claim.Kind == "" || p.isRead || i < 0 || seen[p.container] {
				continue
			}
			seen[p.container] = true
			before, container := old.typed().Containers[had[i].container], now.typed().Containers[p.container]
			field := append(slices.Clone(now.path), "containers", strconv.Itoa(p.container))
			reader := dataReader{old, now, before, container, p.data, field}
			reader.reportUser(r)
			if why := olderImage(before.Image, container.Image); why != "" {
				r.field(now.by, slices.Concat(field, []string{"image"}),
					"%s, and the data in %s are those of %s (%s): %s", container.Image, p.data, before.Image,
					old.by.place(), why)
			}
			s.reportKeys(r, reader)
		}
	})
}

// A dataReader is a container with the data of a container of the previous payload.
type dataReader struct {
	old, now          podSet
	before, container corev1.Container
	data              string
	field             []string // field of the container
}

// reportUser reports a container that runs as another user than before, without a group for its volumes.
func (d dataReader) reportUser(r *reporter) {
	had, _ := userOf(d.old.typed(), d.before)
	has, _ := userOf(d.now.typed(), d.container)
	pod := d.now.typed().SecurityContext
	hasGroup := pod != nil && pod.FSGroup != nil
	if had != nil && has != nil && *has != 0 && *had != *has && !hasGroup {
		r.field(d.now.by, slices.Concat(d.now.path, []string{"securityContext", "runAsUser"}),
			"runAsUser is %d, and the files in %s are those of user %d (%s): set fsGroup, so that the kubelet lets a "+
				"group write them, or keep the user", *has, d.data, *had, d.old.by.place())
	}
}

// majorVersion matches the tag of an image with its major version.
var majorVersion = regexp.MustCompile(`^v?([0-9]{1,3})([.-]|$)`)

// convertsNothing has the names of images of databases that open the files of their own major version only.
var convertsNothing = []string{"postgres", "postgresql", "postgis", "timescaledb"}

// olderImage returns why an image can't read the data of another one; "" if it may.
func olderImage(before, image string) string {
	versions := [2]int{}
	names := [2]string{}
	for i, reference := range []string{before, image} {
		reference, _, _ = strings.Cut(reference, "@")
		colon := strings.LastIndexByte(reference, ':')
		if colon < 0 {
			return ""
		}
		form := majorVersion.FindStringSubmatch(reference[colon+1:])
		if form == nil {
			return ""
		}
		names[i] = reference[:colon]
		versions[i], _ = strconv.Atoi(form[1])
	}
	switch {
	case names[0] != names[1] || versions[0] == versions[1]:
		return ""
	case slices.Contains(convertsNothing, path.Base(names[1])):
		return "it only opens those of its own major version: convert them with pg_upgrade, or restore a dump into a " +
			"new claim"
	case versions[1] < versions[0]:
		return "most programs do not open those of a later major version: keep the image, or restore a backup into a " +
			"new claim"
	default:
		return ""
	}
}

// dataKey matches the names of variables with keys and passwords with which data is written.
var dataKey = regexp.MustCompile(`(?i)crypt|cipher|salt|(master|signing|secret|data)_?key|` +
	`^(postgres|mysql|mariadb|mongo|pg).*passw`)

// isPassword matches the names of variables with the password of a new database.
var isPassword = regexp.MustCompile(`(?i)passw`)

// storeKey matches the names of variables with credentials of object stores, which do not change the stored data.
var storeKey = regexp.MustCompile(`(?i)store|s3|minio|aws|access`)

// reportKeys reports variables with another key than the one with which a container has written its data.
func (s *subject) reportKeys(r *reporter, d dataReader) {
	for i, variable := range d.container.Env {
		j := slices.IndexFunc(d.before.Env, func(v corev1.EnvVar) bool { return v.Name == variable.Name })
		if j < 0 || !dataKey.MatchString(variable.Name) || storeKey.MatchString(variable.Name) {
			continue
		}
		had, has := s.previous.secretValue(d.old.by, d.before.Env[j]), s.secretValue(d.now.by, variable)
		if had != "" && has != "" && had != has {
			why := "the data was written with that: keep the value, or have the program change the key of its data " +
				"first"
			if isPassword.MatchString(variable.Name) {
				why = "a database that has data keeps its password: change it in the database as well"
			}
			r.field(d.now.by, slices.Concat(d.field, []string{"env", strconv.Itoa(i)}),
				"%s has another value than in %s, and %s", variable.Name, d.old.by.place(), why)
		}
	}
}

// secretValue returns the value that a variable has from a Secret of a payload; "" if it is not known.
func (ix *index) secretValue(m *manifest, variable corev1.EnvVar) string {
	if variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
		return ""
	}
	key := variable.ValueFrom.SecretKeyRef
	for _, secret := range ix.byID[kinds.NewID(kinds.Secret, m.id.Namespace, key.Name)] {
		value, err := base64.StdEncoding.DecodeString(secret.text("data", key.Key))
		if !secret.IsCreateOnly() && err == nil {
			return cmp.Or(secret.text("stringData", key.Key), string(value))
		}
	}
	return ""
}
