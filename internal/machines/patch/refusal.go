package patch

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsLackOfRights reports whether RBAC has refused a request: admission and quotas answer with the same reason.
func IsLackOfRights(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ")
}
