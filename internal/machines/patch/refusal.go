package patch

import (
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var lackOfRights = regexp.MustCompile(` is forbidden: User ".*" cannot \S+ (resource|path) "`)

// IsLackOfRights reports whether RBAC has refused a request: admission and quotas answer with the same reason, in other
// words.
func IsLackOfRights(err error) bool {
	return apierrors.IsForbidden(err) && lackOfRights.MatchString(err.Error())
}
