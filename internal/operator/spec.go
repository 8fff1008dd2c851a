package operator

import (
	"fmt"

	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
)

// invalidID returns the errors in spec.clusterID of a ClusterVersion, in the words of the cluster-version operator.
// They stop no update.
func invalidID(v *configv1.ClusterVersion) []string {
	text := string(v.Spec.ClusterID)
	id, err := uuid.Parse(text)
	switch {
	case text == "":
		return nil
	case err != nil, id.Variant() != uuid.RFC4122:
		return []string{fmt.Sprintf("spec.clusterID: Invalid value: %q: must be an RFC4122-variant UUID", text)}
	case id.Version() != 4:
		return []string{fmt.Sprintf("spec.clusterID: Invalid value: %q: must be a version-4 UUID", text)}
	default:
		return nil
	}
}

// changesArchitecture reports whether an update without an image requests another architecture than the release has, as
// "oc adm upgrade --to-multi-arch" does with the version that the cluster has.
func changesArchitecture(v *configv1.ClusterVersion, update configv1.Update) bool {
	return update.Image == "" && update.Architecture != "" && update.Architecture != v.Status.Desired.Architecture
}
