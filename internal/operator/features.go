package operator

import (
	"cmp"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Features are the feature set of a cluster, and the feature gates that are on in it. Empty fields filter as those of
// payload.Filter.
type Features struct {
	Set   string
	Gates []string
}

// featuresOf returns the features of FeatureGate "cluster" for a release: the gates of the first of some versions that
// its status lists. A custom feature set whose status lists none of them has the gates of its spec.
func featuresOf(gate *configv1.FeatureGate, versions ...string) Features {
	found := Features{Set: cmp.Or(string(gate.Spec.FeatureSet), payload.DefaultFeatureSet), Gates: []string{}}
	for _, name := range enabledGates(gate, versions) {
		found.Gates = append(found.Gates, string(name))
	}
	slices.Sort(found.Gates)
	return found
}

func enabledGates(gate *configv1.FeatureGate, versions []string) (enabled []configv1.FeatureGateName) {
	for _, version := range versions {
		at := slices.IndexFunc(gate.Status.FeatureGates, func(d configv1.FeatureGateDetails) bool {
			return d.Version == version
		})
		if at < 0 || version == "" {
			continue
		}
		for _, attributes := range gate.Status.FeatureGates[at].Enabled {
			enabled = append(enabled, attributes.Name)
		}
		return enabled
	}
	if gate.Spec.FeatureSet == configv1.CustomNoUpgrade && gate.Spec.CustomNoUpgrade != nil {
		return gate.Spec.CustomNoUpgrade.Enabled
	}
	return nil
}
