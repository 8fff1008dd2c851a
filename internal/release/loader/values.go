package loader

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Values returns, as JSON, the options that a later read of the same files needs for the same result.
func Values(read *payload.Payload) ([]byte, error) { return json.Marshal(read.Options()) }

// since returns the options to read a version that was applied: those with which it was read, replaced by those that
// are set. Without values it was never applied, and the options count alone.
func (o Options) since(values []byte) (payload.Options, error) {
	set := o.Payload
	if values == nil {
		return set, nil
	}
	var before payload.Options
	if err := json.Unmarshal(values, &before); err != nil {
		return before, fmt.Errorf("the values with which it was read are damaged: %w", err)
	}
	before.Name, before.Version = cmp.Or(set.Name, before.Name), cmp.Or(set.Version, before.Version)
	before.ReleaseImage, before.KeepText = cmp.Or(set.ReleaseImage, before.ReleaseImage), set.KeepText
	before.Namespace = cmp.Or(set.Namespace, before.Namespace)
	if set.Release != nil {
		before.Release = set.Release
	}
	before.Filter.Exclude, before.Filter.Profile = cmp.Or(set.Filter.Exclude, before.Filter.Exclude),
		cmp.Or(set.Filter.Profile, before.Filter.Profile)
	before.Filter.FeatureSet = cmp.Or(set.Filter.FeatureSet, before.Filter.FeatureSet)
	before.Filter.MajorVersion = cmp.Or(set.Filter.MajorVersion, before.Filter.MajorVersion)
	if set.Filter.FeatureGates != nil {
		before.Filter.FeatureGates = set.Filter.FeatureGates
	}
	if set.Filter.Capabilities != nil {
		before.Filter.Capabilities = set.Filter.Capabilities
	}
	if len(o.Unmanaged) > 0 || len(set.Filter.Overrides) > 0 {
		before.Filter.Overrides = set.Filter.Overrides
	}
	return before, nil
}
