package loader

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Values returns what is needed, beside the files of a release, to read it again as it was read, as JSON.
func Values(read *payload.Payload) ([]byte, error) { return json.Marshal(read.Options()) }

// since returns the options to read a version that was applied: those with which it was read, replaced by those that
// are set. Without values it was never applied, and the options count alone.
func (o Options) since(values []byte) (payload.Options, error) {
	set := o.Payload
	if values == nil {
		return set, nil
	}
	var was payload.Options
	if err := json.Unmarshal(values, &was); err != nil {
		return was, fmt.Errorf("the values with which it was read are damaged: %w", err)
	}
	was.Name, was.Version = cmp.Or(set.Name, was.Name), cmp.Or(set.Version, was.Version)
	was.ReleaseImage, was.KeepText = cmp.Or(set.ReleaseImage, was.ReleaseImage), set.KeepText
	was.Namespace = cmp.Or(set.Namespace, was.Namespace)
	if set.Release != nil {
		was.Release = set.Release
	}
	was.Filter.Exclude, was.Filter.Profile = cmp.Or(set.Filter.Exclude, was.Filter.Exclude),
		cmp.Or(set.Filter.Profile, was.Filter.Profile)
	was.Filter.FeatureSet = cmp.Or(set.Filter.FeatureSet, was.Filter.FeatureSet)
	was.Filter.MajorVersion = cmp.Or(set.Filter.MajorVersion, was.Filter.MajorVersion)
	if set.Filter.FeatureGates != nil {
		was.Filter.FeatureGates = set.Filter.FeatureGates
	}
	if set.Filter.Capabilities != nil {
		was.Filter.Capabilities = set.Filter.Capabilities
	}
	if len(o.Unmanaged) > 0 || len(set.Filter.Overrides) > 0 {
		was.Filter.Overrides = set.Filter.Overrides
	}
	return was, nil
}
