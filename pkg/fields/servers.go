package fields

import "maps"

// ofServers are the fields of metadata that only the server says: each write changes them,
// a dry run makes them up, and a manifest has them that was copied from a cluster.
var ofServers = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"}

// WithoutServers is an object without what is the server's in its metadata. It shares all
// else with the object, which stays whole.
func WithoutServers(object map[string]any) map[string]any {
	metadata, isMapping := object["metadata"].(map[string]any)
	if !isMapping {
		return object
	}
	lean := maps.Clone(object)
	metadata = maps.Clone(metadata)
	for _, field := range ofServers {
		delete(metadata, field)
	}
	lean["metadata"] = metadata
	return lean
}
