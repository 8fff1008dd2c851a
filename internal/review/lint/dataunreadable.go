package lint

import (
	"fmt"
	"path"
	"reflect"
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
			before, c := old.typed().Containers[had[i].container], now.typed().Containers[p.container]
			field := "containers|" + strconv.Itoa(p.container)
			reader := dataReader{old, now, before, c, p.data}
			reader.reportUser(r)
			reader.reportCopies(s, r)
			if isOtherMajor(before.Image, c.Image) {
				now.field(r, field+"|image", "%s, and the data in %s are those of %s (%s): it only opens those of its "+
					"own major version: convert them with pg_upgrade, or restore a dump into a new claim", c.Image,
					p.data, before.Image, old.by.place())
			}
			s.reportKeys(r, reader, field)
		}
	})
}

// A dataReader is a container with the data of a container of the previous payload.
type dataReader struct {
	old, now          podSet
	before, container corev1.Container
	data              string
}

// reportUser reports a container that runs as another user than before, without a group for its volumes. PostgreSQL
// refuses a directory of another user even if its group may write there.
func (d dataReader) reportUser(r *reporter) {
	had, _ := userOf(d.old.typed(), d.before)
	has, _ := userOf(d.now.typed(), d.container)
	pod := d.now.typed().SecurityContext
	fix := "set fsGroup, so that the kubelet lets a group write them, or keep the user"
	switch isOwner := slices.Contains(convertsNothing, path.Base(parseImage(d.container.Image).repository)); {
	case isOwner:
		fix = "PostgreSQL does not start with a directory of another user, whatever fsGroup is: keep the user"
	case pod != nil && pod.FSGroup != nil:
		return
	}
	isChanged := slices.ContainsFunc(d.now.typed().InitContainers, func(c corev1.Container) bool {
		user, _ := userOf(d.now.typed(), c)
		return user != nil && *user == 0 // chown
	})
	if had != nil && has != nil && *has != 0 && *had != *has && !isChanged {
		d.now.field(r, "securityContext|runAsUser", "runAsUser is %d, and the files in %s are those of user %d (%s): "+
			"%s", *has, d.data, *had, d.old.by.place(), fix)
	}
}

// convertsNothing has the names of images of databases that open the files of their own major version only.
var convertsNothing = []string{"postgres", "postgresql", "postgis", "timescaledb"}

// isOtherMajor reports whether an image has a later major version than the one before, and can't read its data. The
// rule image-version reports earlier versions.
func isOtherMajor(before, now string) bool {
	old, next := parseImage(before), parseImage(now)
	from, until := versionOf(old.tag), versionOf(next.tag)
	return old.repository == next.repository && from != nil && until != nil && from.Major() < until.Major() &&
		slices.Contains(convertsNothing, path.Base(next.repository))
}

// loners has the names of images of databases whose pods know nothing of each other, unless they are set up for it.
var loners = slices.Concat(convertsNothing, []string{"mysql", "mariadb", "mongo", "mongodb"})

// together matches settings by which the pods of a database know each other.
var together = regexp.MustCompile(`(?i)repl|cluster|galera|wsrep|primary|master|slave`)

// reportCopies reports a database that gets more pods, each with data of its own, behind one Service.
func (d dataReader) reportCopies(s *subject, r *reporter) {
	had, has := d.old.by.get("spec", "replicas"), d.now.by.get("spec", "replicas")
	settings := []any{d.container.Command, d.container.Args, d.container.Env}
	if had != int64(1) && had != nil || has == had || has == nil || has == int64(0) || has == int64(1) ||
		d.now.by.get("spec", "volumeClaimTemplates") == nil || len(d.now.typedContainers()) > 1 ||
		!slices.Contains(loners, path.Base(parseImage(d.container.Image).repository)) ||
		together.MatchString(fmt.Sprint(settings...)) ||
		!reflect.DeepEqual(settings, []any{d.before.Command, d.before.Args, d.before.Env}) {
		return
	}
	for _, m := range s.byKind[kinds.Service] {
		isBehind := slices.ContainsFunc(s.podsBehind(m.id, d.now.by), func(p podSet) bool { return p.by == d.now.by })
		if isBehind && m.text("spec", "clusterIP") != corev1.ClusterIPNone {
			r.field(d.now.by, []string{"spec", "replicas"}, "each of %d replicas has a database of its own, and %s "+
				"(%s) sends clients to any of them, so they find other data each time: keep one, or set up replication",
				has, m.id, m.place())
			return
		}
	}
}

// dataKey matches the names of variables with keys and passwords with which data is written.
var dataKey = regexp.MustCompile(`(?i)crypt|cipher|salt|(master|signing|secret|data)_?key|` +
	`^(postgres|mysql|mariadb|mongo|pg).*passw`)

// storeKey matches the names of variables with credentials of object stores, which do not change the stored data.
var storeKey = regexp.MustCompile(`(?i)store|s3|minio|aws|access`)

// reportKeys reports variables with another key than the one with which a container has written its data.
func (s *subject) reportKeys(r *reporter, d dataReader, field string) {
	for i, variable := range d.container.Env {
		j := slices.IndexFunc(d.before.Env, func(v corev1.EnvVar) bool { return v.Name == variable.Name })
		if j < 0 || !dataKey.MatchString(variable.Name) || storeKey.MatchString(variable.Name) {
			continue
		}
		had, has := s.secretValue(s.previous, d.old.by, d.before.Env[j]), s.secretValue(s.index, d.now.by, variable)
		if had != "" && has != "" && had != has {
			why := "the data was written with that: keep the value, or have the program change the key of its data " +
				"first"
			if strings.Contains(strings.ToLower(variable.Name), "passw") {
				why = "a database that has data keeps its password: change it in the database as well"
			}
			d.now.field(r, field+"|env|"+strconv.Itoa(i), "%s has another value than in %s, and %s", variable.Name,
				d.old.by.place(), why)
		}
	}
}

// secretValue returns the value that a variable has from a Secret of a payload; "" if it is not known.
func (s *subject) secretValue(ix *index, by *manifest, variable corev1.EnvVar) string {
	if variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
		return ""
	}
	key := variable.ValueFrom.SecretKeyRef
	secret := s.in(ix, kinds.NewID(kinds.Secret, by.id.Namespace, key.Name), by)
	if secret == nil || secret.IsCreateOnly() {
		return ""
	}
	value, _ := secret.value(key.Key)
	return value
}
